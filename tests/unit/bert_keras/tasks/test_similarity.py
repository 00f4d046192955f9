"""Vectors of texts: the contrastive loss against plain loops, rows against a table, answers and exports."""

import contextlib
import dataclasses
import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data.array_batches import ArrayExamples
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import init_checkpoint
from bert_keras.finetuning.training import TrainedTask, fine_tune
from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import RandomStates
from bert_keras.saved_model.settings import EmbeddingSettings, ExportSettings
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks import objectives
from bert_keras.tasks.answers import nearest_texts, parse_answers
from bert_keras.tasks.features import task_features
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.config import SecondPhase
from bert_keras.training.phases import phases_of
from tests.support.models.model_folders import read_pushed
from tests.support.models.pushed_folders import without_graph
from tests.support.models.small_training import RUN, Descent
from tests.support.models.task_models import serialized

LETTERS = "abcdefghij"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *LETTERS, *("##" + letter for letter in LETTERS)], True)
CONFIG = BertConfig(len(TOKENIZER.vocabulary), 32, 1, 2, 64, max_position_embeddings=16, initializer_range=0.2)
SIMILARITY, RETRIEVAL = task_of("sentence-similarity"), task_of("sentence-retrieval")
SETTINGS = TaskSettings(max_seq_length=16)


def rows(*texts, golds=None):
    names = ("text", "text_pair", "negative")
    return [
        TaskRow(str(i), dict(zip(names, of_row, strict=False)), golds[i] if golds else None)
        for i, of_row in enumerate(texts)
    ]


def plain_loss(vectors, weights):
    """The mean of -log softmax over the positives and negatives of all rows that count, in loops."""
    vectors = vectors / np.sqrt((vectors**2).sum(-1, keepdims=True))
    total = 0.0
    for i, weight in enumerate(weights):
        odds = {
            (j, k): np.exp(vectors[i, 0] @ vectors[j, k] / 0.05)
            for j in range(len(vectors))
            if weights[j] > 0
            for k in range(1, vectors.shape[1])
        }
        total -= weight * np.log(odds[i, 1] / sum(odds.values())) if weight else 0.0
    return total / sum(weights)


def test_the_loss_of_vectors_that_may_be_cut_is_the_mean_of_all_lengths():
    vectors = np.random.default_rng(5).normal(size=(4, 2, 8)).astype(np.float32)
    vectors /= np.sqrt((vectors**2).sum(-1, keepdims=True))
    weights = np.array([1, 1, 0.5, 0], np.float32)
    objective, batch = objectives.matryoshka([2, 5]), {"weights": weights}
    sums = {name: np.sum(value) for name, value in objective.example_sums(vectors, batch).items()}
    expected = np.mean([plain_loss(vectors[..., :size], weights) for size in (2, 5, 8)])
    np.testing.assert_allclose(objective.loss(sums, objective.totals(batch)), expected, rtol=1e-5)


def test_refuses_lengths_that_vectors_do_not_have():
    settings = dataclasses.replace(SETTINGS, matryoshka_dimensions=(8, 32))
    with pytest.raises(InputError, match=r"matryoshka_dimensions is \(8, 32\), but the vectors have 32 numbers"):
        objectives.check_training(rows(("a", "b")), settings, CONFIG)


@pytest.mark.parametrize(
    ("texts", "weights"), [(2, (1, 1, 1, 1)), (3, (1, 1, 1, 1)), (3, (1.0, 0.25, 0.0, 0.5))], ids=str
)
def test_loss_and_gradient_are_those_of_plain_loops(texts, weights):
    """The gradient by central differences in float64; 1e-4 of its largest is float32's."""
    vectors = np.random.default_rng(texts).normal(size=(4, texts, 3))
    variable = tf.Variable(vectors, dtype=tf.float32)
    batch = {"weights": np.array(weights, np.float32)}
    with tf.GradientTape() as tape:
        sums = objectives.vector_objective.example_sums(tf.math.l2_normalize(variable, -1), batch)
        sums = {name: tf.reduce_sum(value) for name, value in sums.items()}
        loss = objectives.vector_objective.loss(sums, objectives.vector_objective.totals(batch))
    np.testing.assert_allclose(loss, plain_loss(vectors, weights), rtol=1e-5)
    expected, step = np.zeros_like(vectors), 1e-6
    for place in np.ndindex(*vectors.shape):
        ahead, behind = vectors.copy(), vectors.copy()
        ahead[place] += step
        behind[place] -= step
        expected[place] = (plain_loss(ahead, weights) - plain_loss(behind, weights)) / (2 * step)
    np.testing.assert_allclose(tape.gradient(loss, variable), expected, atol=1e-4 * np.abs(expected).max())


def spelt(ids):
    return "".join({"[PAD]": "-", "[CLS]": "C", "[SEP]": "S"}.get(t := TOKENIZER.vocabulary[i], t) for i in ids)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (rows(("a b",), ("c",)), [["CabS", "CabS"], ["CcS-", "CcS-"]]),
        (rows(("a", "b c"), ("d", "e")), [["CaS-", "CbcS"], ["CdS-", "CeS-"]]),
        (rows(("a", "b", "c"), ("d", "e", "f")), [["CaS", "CbS", "CcS"], ["CdS", "CeS", "CfS"]]),
    ],
    ids=["single texts twice", "pairs", "hard negatives"],
)
def test_rows_are_texts_of_their_own(given, expected):
    found = task_features(given, SIMILARITY, SETTINGS, TOKENIZER).arrays
    assert [[spelt(ids) for ids in row] for row in found["input_ids"]] == expected
    assert found["weights"].tolist() == [1, 1]


def test_scored_pairs_weigh_by_their_score():
    scored = rows(("a", "b"), ("c", "d"), ("e", "f"), golds=[1.0, 4.0, 0.0])
    scored += rows(("g", "h"))  # of `--unlabelled`: without a score
    assert task_features(scored, SIMILARITY, SETTINGS, TOKENIZER).arrays["weights"].tolist() == [0.25, 1, 0, 1]


def test_rows_of_other_texts_are_refused():
    with pytest.raises(InputError, match="row 1 of sentence-similarity has text, row 0 has text and text_pair"):
        task_features(rows(("a", "b"), ("c",)), SIMILARITY, SETTINGS, TOKENIZER)


def test_a_single_text_has_two_views_in_training():
    """With dropout they differ; without it they would be equal, and the training is refused."""
    model = task_type_of(SIMILARITY).create_model(CONFIG, SIMILARITY, SETTINGS, 1)
    model.build()
    arrays = task_features(rows(("a b c",), ("d e",)), SIMILARITY, SETTINGS, TOKENIZER).arrays
    batch = {name: arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
    trained, served = (np.array(model(batch, training=training)) for training in (True, False))
    np.testing.assert_allclose((trained**2).sum(-1), 1, rtol=1e-5)
    assert np.abs(trained[:, 0] - trained[:, 1]).max() > 0.05
    np.testing.assert_allclose(served[:, 0], served[:, 1], atol=1e-6)


def test_trainings_that_cannot_work_are_refused():
    without = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    with pytest.raises(InputError, match=r"task\.dropout=0\.1"):
        objectives.check_training(rows(("a",)), SETTINGS, without)
    objectives.check_training(rows(("a", "b")), SETTINGS, without)
    objectives.check_training(rows(("a",)), dataclasses.replace(SETTINGS, dropout=0.1), without)


def test_dropout_of_the_training():
    model = task_type_of(SIMILARITY).create_model(CONFIG, SIMILARITY, dataclasses.replace(SETTINGS, dropout=0.3), 1)
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0.3


def test_nearest_texts():
    """By hand: the query (1, 0) is nearest to x, then y; x is there twice."""
    vectors = np.array([[1, 0], [1, 0], [0.6, 0.8], [0, 1]], np.float32)
    assert nearest_texts(["x", "x", "y", "z"], vectors, vectors) == [
        ["x", "y", "z"],
        ["x", "y", "z"],
        ["y", "z", "x"],
        ["z", "y", "x"],
    ]
    many = [str(i) for i in range(30)]
    found = nearest_texts(many, np.ones((30, 2), np.float32), np.ones((30, 2), np.float32))
    assert {len(answer) for answer in found} == {10}
    assert score(RETRIEVAL, many, found)["mrr@10"] < 0.02  # equal vectors find nothing


def test_scores_of_a_retrieval():
    """Found first, second, and not at all: (1 + 1/2 + 0) / 3."""
    found = score(RETRIEVAL, ["a", "b", "c"], [["a", "b"], ["x", "b", "y"], ["x"]])
    assert found == {
        "mrr@10": pytest.approx(1 / 2),
        "recall@1": pytest.approx(1 / 3),
        "recall@10": pytest.approx(2 / 3),
    }


@pytest.fixture(scope="module")
def trained():
    config = dataclasses.replace(CONFIG, initializer_range=0.5)
    model = task_type_of(SIMILARITY).create_model(config, SIMILARITY, dataclasses.replace(SETTINGS, pooling="cls"), 1)
    model.build()
    return model


@pytest.mark.parametrize("task", [SIMILARITY, RETRIEVAL], ids=["similarity", "retrieval"])
def test_the_pushed_model_embeds(task, trained, tmp_path):
    settings = dataclasses.replace(SETTINGS, pooling="cls", matryoshka_dimensions=(4,))
    export = ExportSettings(embedding=EmbeddingSettings(normalize=False))
    # Only `evaluate` is another for a retrieval: it is tested without a SavedModel.
    with without_graph() if task is RETRIEVAL else contextlib.nullcontext() as exported:
        export_task_model(trained, task, settings, TOKENIZER, str(tmp_path / "1"), export)
    signatures = exported[0] if exported else tf.saved_model.load(str(tmp_path / "1")).signatures
    assert set(signatures) == {"serving_default", "embed", "evaluate", "encode", "encode_pair"}
    texts = tf.constant(["a b", "c", "a b c d e f"])
    encoded = signatures["encode"](text=texts)
    assert "pooled_output" not in encoded  # of a pooler that nobody trained
    for name in ("serving_default", "embed"):
        answer = signatures[name](text=texts)
        np.testing.assert_allclose(answer["embedding"], encoded["sequence_output"][:, 0], rtol=1e-6)
        assert answer["num_tokens"].numpy().tolist() == [4, 3, 8]
    assert json.loads((tmp_path / "1" / "bert_config.json").read_text())["embedding"]["pooling"] == "cls"
    read = read_pushed(str(tmp_path / "1"))
    expected = EmbeddingSettings("cls", False, matryoshka_dimensions=(4,))
    assert (read.embedding, read.untrained) == (expected, ("pooler",))

    pairs = [("a b", "a c"), ("d", "e f"), ("g", "g h"), ("i j", "a"), ("b", "a c")]
    golds = [b for _, b in pairs] if task is RETRIEVAL else [1.0, 2.0, 3.0, 4.0, 5.0]
    given = rows(*pairs, golds=golds)
    found = signatures["evaluate"](examples=tf.constant(serialized(given)))
    written = [a.tobytes() if task is RETRIEVAL else a for a in found["answer"].numpy()]
    answers = TrainedTask(trained, task, settings, TOKENIZER).answers(given, 2)
    parsed = parse_answers(task.kind, golds, written)
    if task is RETRIEVAL:
        assert parsed == answers and {len(answer) for answer in answers} == {4}  # "a c" is there twice
    else:
        np.testing.assert_allclose(parsed, answers, atol=1e-6)


def test_pairs_are_learned(tmp_path):
    """The positive of a text of two letters has its letters in another case of words; random weights find few."""
    rng = np.random.default_rng(3)
    texts = sorted({" ".join(sorted(rng.choice(list(LETTERS), 3, replace=False))) for _ in range(80)})[:48]
    pairs = rows(*((text, text.replace(" ", "")) for text in texts), golds=[text.replace(" ", "") for text in texts])
    config = FineTuningConfig(num_train_epochs=20, train_batch_size=16, learning_rate=2e-3, eval_batch_size=16)
    init = init_checkpoint(CONFIG, TOKENIZER)
    untrained = task_type_of(RETRIEVAL).create_model(CONFIG, RETRIEVAL, SETTINGS, config.seed)
    untrained.build()
    scores = types.SimpleNamespace()
    for name, model in {
        "before": untrained,
        "after": fine_tune(RETRIEVAL, SETTINGS, config, init, pairs, pairs, str(tmp_path)),
    }.items():
        answers = TrainedTask(model, RETRIEVAL, SETTINGS, TOKENIZER).answers(pairs, 16)
        setattr(scores, name, score(RETRIEVAL, [row.gold for row in pairs], answers)["mrr@10"])
    print(vars(scores))
    assert scores.before < 0.5 and scores.after > scores.before + 0.3


def test_both_passes_of_a_batch_in_parts_drop_out_the_same():
    """Of a batch in two parts the gradient is that of one pass with the dropout of each part."""
    model = task_type_of(SIMILARITY).create_model(CONFIG, SIMILARITY, dataclasses.replace(SETTINGS, dropout=0.3), 1)
    model.build()
    arrays = task_features(rows(("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")), SIMILARITY, SETTINGS, TOKENIZER)
    config = dataclasses.replace(RUN, train_batch_size=4, clip_norm=1e9, gradient_accumulation_steps=2, seed=3)
    (phase,) = phases_of(config, SecondPhase(), [ArrayExamples(arrays.arrays, arrays.arrays)])
    batch, variables, vectors = next(phase.train_batches(0, 3)), model.trainable_variables, []
    with tf.GradientTape() as tape:
        for part in range(2):
            with keras.StatelessScope(RandomStates(model).of(tf.constant(part, tf.int64))):
                of_part = {name: values[2 * part : 2 * part + 2] for name, values in batch.items()}
                vectors.append(model(of_part, training=True))
        sums = objectives.vector_objective.example_sums(tf.concat(vectors, 0), batch)
        loss = tf.reduce_mean(sums["nll"])
    expected = tape.gradient(loss, [variable.value for variable in variables])
    before, descent = [variable.numpy() for variable in variables], Descent(1.0)
    descent.build(variables)
    steps = open_devices(config).train_steps(model, descent, objectives.vector_objective, config)
    steps(steps.feed(phase, 0), 1)
    for old, variable, gradient in zip(before, variables, expected, strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy()
        np.testing.assert_allclose(old - variable.numpy(), gradient, atol=1e-6 * max(1, np.abs(gradient).max()))


def test_the_last_batch_has_no_copies_as_negatives():
    """Held-out rows that fill up a batch have weight 0: 3 rows in batches of 2 give the loss of 2 and of 1."""
    arrays = task_features(rows(("a", "b"), ("c", "d"), ("e", "f")), SIMILARITY, SETTINGS, TOKENIZER).arrays
    *_, last = ArrayExamples(arrays, arrays).eval_batches(2)
    assert last["weights"].tolist() == [1, 0]
    vectors = tf.math.l2_normalize(tf.random.stateless_normal((2, 2, 4), [1, 2]), -1)
    assert objectives.vector_objective.example_sums(vectors, last)["nll"].numpy().tolist() == [0, 0]
