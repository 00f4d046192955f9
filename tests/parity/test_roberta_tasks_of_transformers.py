"""RoBERTa's tokens, sequences, answers and head against `transformers`."""

import itertools

import numpy as np
import pytest
import torch
import transformers

from bert_keras.models.config import BertConfig
from bert_keras.models.task_models import BertForSequenceClassification
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.features import span_features
from bert_keras.tokenizers.vocabulary_files import write_vocabulary
from tests.support.models.tiny_byte_bpe import SENTENCES, TEXTS, tiny_byte_bpe
from tests.support.models.variants_of_transformers import as_here, encoder_names

OURS = tiny_byte_bpe()
ALL = [*TEXTS, *SENTENCES]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    write_vocabulary(str(folder), OURS)
    tokenizer = transformers.RobertaTokenizerFast.from_pretrained(str(folder))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 2, 1)
    return tokenizer


def test_tokens_and_places(theirs):
    found = OURS.encode_with_offsets(ALL)
    for text, (begin, end) in zip(ALL, itertools.pairwise(found.row_splits), strict=True):
        expected = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        assert found.ids[begin:end].tolist() == expected["input_ids"], text
        places = zip(found.starts[begin:end].tolist(), found.ends[begin:end].tolist(), strict=True)
        # Of pieces of spaces alone they have a place without characters.
        for ours, (start, stop) in zip(places, expected["offset_mapping"], strict=True):
            assert ours == (start, stop) or (start == stop and not text[slice(*ours)].strip(" "))


def test_words(theirs):
    words = ["The", "l'été", "'s", "漢字", "1600", "wasn't", "😀"]
    tokenizer = transformers.RobertaTokenizerFast.from_pretrained(theirs.name_or_path, add_prefix_space=True)
    expected = tokenizer(words, is_split_into_words=True, add_special_tokens=False)
    ids, splits = OURS.encode_words(words)
    assert ids.tolist() == expected["input_ids"]
    assert expected.word_ids() == np.repeat(np.arange(len(words)), np.diff(splits)).tolist()


@pytest.mark.parametrize("length", [12, 30, 200])
def test_sequences(theirs, length):
    """Room for an even number of pieces: of an odd one, the longer text has one more there (see BERT's)."""
    first, second = (list(column) for column in zip(*itertools.product(ALL, ALL), strict=True))
    pairs = pair_sequences(TokenRuns.of(OURS, first), TokenRuns.of(OURS, second), length, OURS)
    single = single_sequences(TokenRuns.of(OURS, ALL), length, "head", OURS)
    for found, texts in ((single, (ALL,)), (pairs, (first, second))):
        settings = {"truncation": "longest_first", "max_length": length, "padding": "longest", "return_tensors": "np"}
        expected = theirs(*texts, **settings)
        np.testing.assert_array_equal(found["input_ids"], expected["input_ids"])
        np.testing.assert_array_equal(found["input_mask"], expected["attention_mask"])


def test_answers_of_squad(theirs):
    """As transformers' run_qa.py finds them, in one window."""
    context, rows = SENTENCES[0], []
    for start, end in itertools.combinations([0, 4, 8, 24, 45, 62, 73, 85, 102], 2):
        answer = context[start:end].strip()
        gold = {"answers": [{"text": answer, "answer_start": context.index(answer, start)}]}
        rows.append(TaskRow(str(len(rows)), {"question": "Who ran?", "context": context}, gold))
    features = span_features(rows, TaskSettings(max_seq_length=300), OURS)
    encoded = theirs("Who ran?", context, return_offsets_mapping=True)
    offsets, of_context = encoded["offset_mapping"], [i == 1 for i in encoded.sequence_ids()]
    assert features.arrays["input_ids"][0].tolist() == encoded["input_ids"]
    for row, start, end in zip(rows, *(features.arrays[f"{n}_positions"] for n in ("start", "end")), strict=True):
        (answer,) = row.gold["answers"]
        first, last = answer["answer_start"], answer["answer_start"] + len(answer["text"])
        assert start == max(i for i, (a, _) in enumerate(offsets) if of_context[i] and a <= first)
        assert end == min(i for i, (_, b) in enumerate(offsets) if of_context[i] and b >= last)


def test_the_classification_head():
    """Of the same weights: dense and tanh over <s> are the pooler here, and what is over it the classifier."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    torch.manual_seed(0)
    config = transformers.RobertaConfig(**sizes, max_position_embeddings=22, num_labels=3, initializer_range=0.3)
    hub = transformers.RobertaForSequenceClassification(config).eval()
    model = BertForSequenceClassification(
        BertConfig(**sizes, max_position_embeddings=20, hidden_act="gelu_erf"), num_labels=3
    )
    model.build()
    tensors = {name: value.detach().numpy() for name, value in hub.named_parameters()}
    for name, variable in encoder_names(model.backbone, "roberta.").items():
        variable.assign(as_here(name, tensors.pop(name)))
    for layer, name in ((model.backbone.pooler, "classifier.dense"), (model.classifier, "classifier.out_proj")):
        layer.kernel.assign(tensors.pop(f"{name}.weight").T)
        layer.bias.assign(tensors.pop(f"{name}.bias"))
    assert not tensors
    ids, mask = np.random.default_rng(0).integers(2, 50, (4, 12)), np.arange(12) < np.array([[12], [9], [5], [1]])
    inputs = {"input_ids": np.where(mask, ids, 1), "input_mask": mask.astype("int32"), "segment_ids": mask * 0}
    expected = hub(torch.from_numpy(inputs["input_ids"]), torch.from_numpy(inputs["input_mask"])).logits
    np.testing.assert_allclose(model(inputs), expected.detach().numpy(), atol=1e-4)
