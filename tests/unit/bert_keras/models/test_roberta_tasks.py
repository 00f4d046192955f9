"""RoBERTa in every task type: from Hugging Face's folder to a SavedModel that takes raw text."""

import dataclasses
import importlib.util
import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import init_checkpoint, initialize_encoder, read_init
from bert_keras.finetuning.training import TrainedTask
from bert_keras.models import task_models
from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import Dropout
from bert_keras.models.pretraining_heads import RobertaForMaskedLM
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.saved_model.text_inputs import TextInputs
from bert_keras.tasks.answers import parse_answer
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.features import span_features
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from tests.support.models.model_folders import assert_equal, read_any, write, write_huggingface, write_keras_hub
from tests.support.models.pushed_folders import without_graph
from tests.support.models.task_models import serialized
from tests.support.models.tiny_byte_bpe import SENTENCES, TEXTS, tiny_byte_bpe

TOKENIZER = tiny_byte_bpe()
CONFIG = BertConfig(
    len(TOKENIZER.vocabulary),
    32,
    1,
    2,
    64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=32,
    type_vocab_size=1,
    initializer_range=0.2,  # so small a model would learn nothing for long
    layer_norm_eps=1e-5,
    hidden_act="gelu_erf",
)
SETTINGS = TaskSettings(max_seq_length=24, max_query_length=8, doc_stride=6, truncation="head_tail")
TASKS = {
    "classification": task_of("mrpc"),
    "regression": task_of("sts-b"),
    "multiple_choice": task_of("codah"),
    "tagging": dataclasses.replace(task_of("ner"), labels=("B-person", "I-person", "O")),
    "span": task_of("squad2.0"),
}
WRITERS = {
    "hf": write_huggingface,
    "keras-hub": pytest.param(
        write_keras_hub,
        marks=pytest.mark.skipif(not importlib.util.find_spec("keras_hub"), reason="an extra"),
    ),
}


def built(task, seed=1, settings=SETTINGS):
    model = task_type_of(task).create_model(CONFIG, task, settings, seed)
    model.build()
    return model


def sharp(task):
    """A model with different outputs for different texts."""
    model = built(task)
    model.set_weights([weight * (0.8 if weight.ndim > 1 else 8) for weight in model.get_weights()])
    return model


def pretrained():
    model = RobertaForMaskedLM(CONFIG, seed=5)
    model.build()
    return model


def tokens(ids):
    return [TOKENIZER.vocabulary[i] for i in ids]


def text_rows(texts, pairs=None):
    if pairs is None:
        return [TaskRow(str(i), {"text": text}) for i, text in enumerate(texts)]
    both = zip(texts, pairs, strict=True)
    return [TaskRow(str(i), {"text": text, "text_pair": pair}) for i, (text, pair) in enumerate(both)]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_folder_of_a_roberta_is_read_and_its_pooler_drawn_by_the_run(write, tmp_path):
    model = pretrained()
    write(model, TOKENIZER, str(tmp_path / "folder"))
    start = read_init(str(tmp_path / "folder"))
    assert start.family == "roberta" and start.tokenizer.merges == TOKENIZER.merges
    tuned, other, drawn = (built(task_of("sst-2"), seed) for seed in (7, 8, 7))
    for one in (tuned, other):
        initialize_encoder(one, start)
    for ours, theirs in zip(tuned.backbone.weights[:-2], start.encoder.weights, strict=True):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs), err_msg=ours.path)
    np.testing.assert_array_equal(tuned.backbone.embeddings.weights[0], model.backbone.embeddings.weights[0])
    np.testing.assert_array_equal(tuned.backbone.pooler.kernel, drawn.backbone.pooler.kernel)
    assert np.abs(np.array(tuned.backbone.pooler.kernel) - np.array(other.backbone.pooler.kernel)).max() > 0.01


def test_training_pools_like_scoring(monkeypatch):
    """A ModernBERT's head pools the mean; without dropout training and scoring are one function."""
    model = task_models.BertForSequenceClassification(CONFIG, 3, head="norm_mean")
    model.build()
    model.drops_encoder_output = True
    monkeypatch.setattr(model.dropout, "rate", 0.0)
    inputs = task_type_of(task_of("sst-2")).features(text_rows(TEXTS), task_of("sst-2"), SETTINGS, TOKENIZER).arrays
    np.testing.assert_allclose(model(inputs, training=True), model(inputs), atol=1e-6)


class HalfDropped(Dropout):
    def call(self, inputs, training=False):
        half = np.arange(inputs.shape[-1]) < inputs.shape[-1] // 2
        return inputs if not training else ops.where(half, 0.0, inputs)


@pytest.mark.parametrize("is_roberta", [False, True])
def test_dropout_on_both_sides_of_the_dense_layer(is_roberta, monkeypatch):
    """If everything before the dense layer is dropped, its bias remains; BERT drops its output."""
    task = dataclasses.replace(task_of("sst-2"), labels=("a", "b", "c"))
    monkeypatch.setattr(task_models, "Dropout", HalfDropped)  # the head's
    model = built(task)
    initialize_encoder(model, init_checkpoint(CONFIG, TOKENIZER, family="roberta" if is_roberta else "bert"))
    bias = np.linspace(-1, 1, 32, dtype="float32")
    model.backbone.pooler.bias.assign(bias)
    inputs = task_type_of(task).features(text_rows(TEXTS), task, SETTINGS, TOKENIZER).arrays

    pooled = np.array(model.backbone(inputs)["pooled_output"])
    kernel, out = np.array(model.classifier.kernel), np.array(model.classifier.bias)
    expected = np.tile(np.tanh(bias), (len(TEXTS), 1)) if is_roberta else pooled * (np.arange(32) >= 16)
    np.testing.assert_allclose(model(inputs, training=True), expected @ kernel + out, atol=1e-5)
    np.testing.assert_allclose(model(inputs, training=False), pooled @ kernel + out, atol=1e-5)


def test_pairs_have_two_separators_and_no_segments():
    arrays = (
        task_type_of(task_of("mrpc"))
        .features(
            text_rows(["The cat", "", "a " * 30], ["the mat", "x", "b " * 30]), task_of("mrpc"), SETTINGS, TOKENIZER
        )
        .arrays
    )
    ids, mask = arrays["input_ids"], arrays["input_mask"]
    assert tokens(ids[0][mask[0] == 1]) == [
        "<s>", *TOKENIZER.tokenize("The cat"), "</s>", "</s>", *TOKENIZER.tokenize("the mat"), "</s>",
    ]  # fmt: skip
    assert tokens(ids[1][:5]) == ["<s>", "</s>", "</s>", "x", "</s>"] and set(tokens(ids[1][5:])) == {"<pad>"}
    assert mask[2].sum() == 24 and tokens(ids[2][[0, 11, 12, 23]]) == ["<s>", "</s>", "</s>", "</s>"]
    assert not arrays["segment_ids"].any()
    single = (
        task_type_of(task_of("sst-2")).features(text_rows(["The cat"]), task_of("sst-2"), SETTINGS, TOKENIZER).arrays
    )
    assert tokens(single["input_ids"][0]) == ["<s>", *TOKENIZER.tokenize("The cat"), "</s>"]


# Longer than all, and shorter; how a single text is cut is the same for all tokenizers (test_served_inputs.py).
@pytest.mark.parametrize(("task", "length"), [("sst-2", 11), ("mrpc", 8), ("mrpc", 64)])
def test_the_graph_makes_the_sequences_of_training(task, length):
    """Of the same pieces: those of the graph are tested in test_byte_bpe_graph.py."""
    task, settings = task_of(task), TaskSettings(max_seq_length=length, truncation="head_tail")
    served = TextInputs(TOKENIZER, length, settings.truncation)
    columns = [list(column) for column in zip(*itertools.product(TEXTS, TEXTS), strict=True)][: 1 + task.pair]
    expected = task_type_of(task).features(text_rows(*columns), task, settings, TOKENIZER).arrays
    pieces = [tf.RaggedTensor.from_row_splits(*TOKENIZER.encode(column)) for column in columns]
    for name, array in served.pack(*pieces).items():
        np.testing.assert_array_equal(array, expected[name])


def span_row(context, answer, question="Who?"):
    gold = {"answers": [{"text": answer, "answer_start": context.index(answer)}]}
    return TaskRow(answer, {"question": question, "context": context}, gold)


def test_windows_and_answers_by_characters():
    context = "Ada (1815-1852), the 'Enchantress of Number', né 漢字😀 there."
    settings = TaskSettings(max_seq_length=120, max_query_length=8)
    answers = ["1815", "Ada", "the 'Enchantress", "Number", "漢", "😀", "字😀 there", " the"]
    rows = [span_row(context, answer) for answer in answers]
    features = span_features(rows, settings, TOKENIZER)
    ids, starts, ends = (features.arrays[name] for name in ("input_ids", "start_positions", "end_positions"))
    question = TOKENIZER.tokenize("Who?")
    assert tokens(ids[0])[: len(question) + 3] == ["<s>", *question, "</s>", "</s>"]
    assert tokens(ids[0])[len(question) + 3 : -1] == TOKENIZER.tokenize(context) and tokens(ids[0])[-1] == "</s>"
    assert not features.arrays["segment_ids"].any() and features.arrays["weights"].all()
    for row, answer in enumerate(answers):
        begin, end = features.windows.characters(row, starts[row], ends[row])
        # The pieces that hold it, and no more of them: characters whose bytes are in several pieces count whole.
        assert answer.strip() in context[begin:end]
        assert starts[row] == ends[row] or context[begin:end].startswith(answer.strip()[0])
        one_less = features.windows.characters(row, starts[row], max(starts[row], ends[row] - 1))
        assert starts[row] == ends[row] or answer.strip() not in context[slice(*one_less)] or answer in "漢😀"
    whole = features.windows.characters(answers.index("Ada"), starts[1], ends[1])
    assert context[slice(*whole)] == "Ada"


def test_a_window_has_no_room_beside_four_special_tokens():
    settings = TaskSettings(max_seq_length=12, max_query_length=8)
    with pytest.raises(InputError, match="8 tokens and 4 special tokens: set the first to more than 12"):
        span_features([span_row("a cat", "cat")], settings, TOKENIZER)


def inputs_of(kind):
    pairs = list(itertools.product((*TEXTS, SENTENCES[0]), (*TEXTS, SENTENCES[1])))
    if kind == "multiple_choice":
        return [{"text": a, "choices": (b, "a cat", b + " sat")} for a, b in pairs]
    if kind == "tagging":
        words = "Café 漢字, The CAT's \u200b 'll mat's 😀 e\u0301té"
        return [{"text": text} for text in (words, "the " * 40 + "end", "cats", *SENTENCES)]
    first, second = ("question", "context") if kind == "span" else ("text", "text_pair")
    return [{first: a, second: b} for a, b in pairs]


def assert_served_as_evaluated(trained, signatures, rows):
    found = signatures["evaluate"](examples=tf.constant(serialized(rows)))
    answers = [parse_answer(trained.task.kind, answer) for answer in found["answer"].numpy()]
    expected = trained.answers(rows, 64)
    if trained.task.kind == "regression":
        assert answers == pytest.approx(expected, abs=1e-5, rel=1e-5)
    else:
        assert answers == expected
    assert len({str(answer) for answer in expected}) > 1


def exported(task, directory):
    """A model, and its signatures as they are exported; a SavedModel of this tokenizer is that of test_byte_bpe.py."""
    trained = TrainedTask(sharp(task), task, SETTINGS, TOKENIZER)
    with without_graph() as of_folders:
        export_task_model(trained.model, task, SETTINGS, TOKENIZER, str(directory))
    return trained, *of_folders


# Their signatures differ from one another as those of a BERT do (test_task_signatures.py).
@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("multiple_choice", "tagging")), "span"]
)
def test_served_answers_equal_the_model_on_features(kind, tmp_path):
    rows = [TaskRow(str(i), of_row) for i, of_row in enumerate(inputs_of(kind))]
    assert_served_as_evaluated(*exported(TASKS[kind], tmp_path), rows)


def test_a_pushed_model_is_served_and_an_initial_checkpoint(tmp_path):
    pushed = tmp_path / "pushed"
    trained, signatures = exported(TASKS["regression"], pushed)
    rows = [TaskRow(str(i), of_row) for i, of_row in enumerate(inputs_of("regression"))]
    assert_served_as_evaluated(trained, signatures, rows)
    again = read_init(str(pushed))
    assert (again.family, again.tokenizer.merges) == ("roberta", TOKENIZER.merges)
    other = built(task_of("sst-2"))
    initialize_encoder(other, again)
    assert_equal(other.backbone, trained.model.backbone)
    # As `bert-tfx convert --from bert-tfx --to hf`: with its pooler.
    found = read_any(str(pushed))
    write("hf", found.model, found.tokenizer, tmp_path / "out", found.family)
    assert_equal(read_init(str(tmp_path / "out")).encoder, trained.model.backbone)
