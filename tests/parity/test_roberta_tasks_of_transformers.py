"""RoBERTa's tokens, sequences and answers against `transformers`."""

import itertools

import numpy as np
import pytest
import transformers

from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.features import span_features
from bert_keras.tokenizers.vocabulary_files import write_vocabulary
from tests.support.models.tiny_byte_bpe import SENTENCES, TEXTS, tiny_byte_bpe

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
