"""The fine-tuning models and their losses."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models import task_models as heads
from bert_keras.models.config import BertConfig
from bert_keras.tasks import objectives
from tests.support.models.every_model import CLASSES, SEVERAL, TAGS, loss_of
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of

TINY = BertConfig.size(2, 32, vocab_size=40, max_position_embeddings=16, hidden_dropout_prob=0.0)
B, C, T, LABELS = 16, 3, 8, 3
DEPTH = depth_of(TINY, T)


def inputs(rows=B, length=T, choices=None, padding=2, seed=0):
    """Random sequences, every second one with `padding` positions of padding."""
    generator = np.random.default_rng(seed)
    shape = (rows, length) if choices is None else (rows, choices, length)
    mask = np.ones(shape, "int32")
    mask[::2, ..., length - padding :] = 0
    ids = generator.integers(1, TINY.vocab_size, shape).astype("int32")
    segments = np.broadcast_to(np.arange(length) >= length // 2, shape).astype("int32")
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}


def draw(high, shape, seed=1):
    return np.random.default_rng(seed).integers(0, high, shape).astype("int32")


def token_labels(mask):
    """A label a token, but for [CLS], every third position and padding."""
    return np.where((mask == 1) & (np.arange(mask.shape[1]) % 3 != 0), draw(LABELS, mask.shape), -1)


class Task(NamedTuple):
    """Factories of a model, of its random inputs, and of its loss; and the shapes of its outputs."""

    create: Callable
    inputs: Callable
    loss: Callable
    shapes: list
    reads_pooler: bool = True


TASKS = {
    "classification": Task(
        lambda: heads.BertForSequenceClassification(TINY, LABELS, seed=5),
        inputs,
        lambda outputs, x: loss_of(CLASSES, outputs, labels=draw(LABELS, B)),
        [(B, LABELS)],
    ),
    "regression": Task(
        lambda: heads.BertForRegression(TINY, seed=5),
        inputs,
        lambda outputs, x: loss_of(objectives.number_objective, outputs, labels=draw(5, B) / 5),
        [(B,)],
    ),
    "multiple choice": Task(
        lambda: heads.BertForMultipleChoice(TINY, seed=5),
        functools.partial(inputs, choices=C),
        lambda outputs, x: loss_of(CLASSES, outputs, labels=draw(C, B)),
        [(B, C)],
    ),
    "span": Task(
        lambda: heads.BertForSpanExtraction(TINY, seed=5),
        inputs,
        lambda outputs, x: loss_of(
            objectives.span_objective,
            outputs,
            start_positions=draw(T, B, seed=2),
            end_positions=draw(T, B, seed=3),
        ),
        [(B, T), (B, T)],
        reads_pooler=False,
    ),
    "token": Task(
        lambda: heads.BertForTokenClassification(TINY, LABELS, seed=5),
        inputs,
        lambda outputs, x: loss_of(TAGS, outputs, token_labels=token_labels(x["input_mask"])),
        [(B, T, LABELS)],
        reads_pooler=False,
    ),
}
all_tasks = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def arrays(outputs):
    """Outputs as a list of float32 arrays, logits of a dict by name."""
    if isinstance(outputs, dict):
        return [np.asarray(keras.ops.cast(outputs[name], "float32")) for name in sorted(outputs)]
    return [np.asarray(keras.ops.cast(outputs, "float32"))]


def built(task):
    model = task.create()
    model.build()
    return model


def test_each_choice_is_scored_independently():
    """Section 4.4: the score of a choice depends on no other, and all are scored with the same weights."""
    model = built(TASKS["multiple choice"])
    x = TASKS["multiple choice"].inputs()
    swapped = {k: v[:, ::-1] for k, v in x.items()}
    assert_equal_but_for_rounding(np.asarray(model(x))[:, ::-1], model(swapped), DEPTH)
    assert [tuple(v.shape) for v in model.classifier.weights] == [(32, 1)]


@all_tasks
def test_gradients_reach_head_and_encoder(task):
    model = built(task)
    x = task.inputs()
    with tf.GradientTape() as tape:
        outputs = model(x)
        loss = task.loss(outputs, x)
    assert [array.shape for array in arrays(outputs)] == task.shapes
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        # A bias of all keys alike moves no softmax: its gradient is 0 but for rounding.
        assert variable.path.endswith("key/bias") or np.abs(np.asarray(tf.convert_to_tensor(gradient))).max() > 0
    paths = {v.path.split("/", 1)[1] for v in model.trainable_variables}
    assert paths >= {
        "classifier/kernel",
        "bert/embeddings/word_embeddings/embeddings",
        "bert/layer_0/attention/query/kernel",
    }
    assert ("bert/pooler/kernel" in paths) == task.reads_pooler


@all_tasks
def test_the_output_layer_is_drawn_from_the_cut_normal(task):
    kernel = np.asarray(built(task).classifier.kernel)
    assert 0 < np.abs(kernel).max() <= 0.04
    assert abs(kernel.std() - 0.0176) < 0.006


@pytest.mark.parametrize("task", ["classification", "regression", "multiple choice", "token"])
def test_dropout_of_a_tenth_before_the_output_layer(task):
    model = built(TASKS[task])
    still = dataclasses.replace(TINY, attention_probs_dropout_prob=0.0)
    assert still.hidden_dropout_prob == 0.0 and model.dropout.rate == 0.1
    again = type(model).from_config({**model.get_config(), "config": dataclasses.asdict(still)})
    again.build()
    x = TASKS[task].inputs()
    assert (arrays(again(x, training=True))[0] != arrays(again(x))[0]).any()


def test_start_and_end_are_the_two_outputs():
    model = built(TASKS["span"])
    model.classifier.set_weights([np.zeros((32, 2)), np.array([1.0, 2.0])])
    outputs = model(inputs())
    assert (np.asarray(outputs["start_logits"]) == 1.0).all() and (np.asarray(outputs["end_logits"]) == 2.0).all()


def test_no_dropout_before_the_span_logits():
    model = heads.BertForSpanExtraction(dataclasses.replace(TINY, attention_probs_dropout_prob=0.0))
    x = inputs()
    for a, b in zip(arrays(model(x, training=True)), arrays(model(x)), strict=True):
        assert_equal_but_for_rounding(a, b, DEPTH)


def test_a_left_to_right_sentence_is_read_at_its_last_token():
    """The first token of a causal encoder sees nothing else; a BiLSTM on it sees all."""
    causal, x = dataclasses.replace(TINY, causal=True), inputs()
    for bilstm in (False, True):
        model = heads.BertForSequenceClassification(causal, LABELS, has_bilstm=bilstm, seed=5)
        model.build()
        model.set_weights([w * 2 for w in model.get_weights()])
        before = arrays(model(x))[0]
        rows, last = np.arange(B), x["input_mask"].sum(-1) - 1
        for places, moves in ((last, True), (0 * last, True), (np.minimum(last + 1, T - 1), False)):
            changed = {**x, "input_ids": x["input_ids"].copy()}
            changed["input_ids"][rows, places] = (changed["input_ids"][rows, places] + 1) % 40
            short = last < T - 1  # the others have no padding
            difference = np.abs(arrays(model(changed))[0] - before)[short]
            assert (difference.max(-1) > 1e-5).all() if moves else difference.max() == 0


def test_a_bilstm_lets_a_tag_of_a_left_to_right_encoder_see_what_follows():
    causal, x = dataclasses.replace(TINY, causal=True), inputs(padding=0)
    changed = {**x, "input_ids": x["input_ids"].copy()}
    changed["input_ids"][:, -1] = (changed["input_ids"][:, -1] + 1) % 40
    for bilstm in (False, True):
        model = heads.BertForTokenClassification(causal, LABELS, has_bilstm=bilstm, seed=5)
        model.build()
        model.set_weights([w * 2 for w in model.get_weights()])
        moved = np.abs(arrays(model(x))[0] - arrays(model(changed))[0])[:, 0].max()
        assert (moved > 1e-5) == bilstm
        assert type(model).from_config(model.get_config()).get_config() == model.get_config()


def test_no_labels_is_an_error():
    with pytest.raises(ValueError, match="num_labels is 0"):
        heads.BertForTokenClassification(TINY, 0)


# Logits ln 3, 0 are probabilities 3/4, 1/4: a loss of ln 4/3 or ln 4.
RIGHT, WRONG = math.log(4 / 3), math.log(4)
TWO = np.array([[math.log(3), 0.0], [math.log(3), 0.0]], "float32")
NUMBERS, SPANS = objectives.number_objective, objectives.span_objective
# Starts: right, right. Ends, of probabilities 1/4 and 3/4: wrong, right.
ENDS = {"start_logits": TWO, "end_logits": TWO[:, ::-1]}
PLACES = {"start_positions": [0, 0], "end_positions": [0, 1]}
TOKENS = np.stack([TWO, TWO])  # two rows of two tokens


@pytest.mark.parametrize(
    ("objective", "outputs", "labels", "weights", "expected"),
    [
        (CLASSES, TWO, {"labels": [0, 1]}, None, (RIGHT + WRONG) / 2),
        (CLASSES, TWO, {"labels": [0, 1]}, [3.0, 1.0], (3 * RIGHT + WRONG) / 4),
        (CLASSES, TWO, {"labels": [0, 1]}, [2.0, 0.0], RIGHT),  # not halved
        (CLASSES, TWO, {"labels": [0, 1]}, [0.0, 0.0], 0.0),
        (NUMBERS, [1.0, 2.0], {"labels": [0.0, 4.0]}, None, (1 + 4) / 2),
        (NUMBERS, [1.0, 2.0], {"labels": [0, 4]}, [1, 3], (1 + 12) / 4),
        (SPANS, ENDS, PLACES, None, (RIGHT + (WRONG + RIGHT) / 2) / 2),
        (SPANS, ENDS, PLACES, [0.0, 1.0], RIGHT),
        # Tokens without a label are left out, and every label counts the same.
        (TAGS, TOKENS, {"token_labels": [[0, 1], [0, -1]]}, None, (2 * RIGHT + WRONG) / 3),
        (TAGS, TOKENS, {"token_labels": [[-1, 1], [-100, -1]]}, None, WRONG),
        (TAGS, TOKENS, {"token_labels": [[-1, -1], [-1, -1]]}, None, 0.0),
    ],
)
def test_losses_by_hand(objective, outputs, labels, weights, expected):
    assert float(loss_of(objective, outputs, weights, **labels)) == pytest.approx(expected)


def test_the_loss_of_several_labels_by_hand():
    """Each logit is a decision of its own: ln 3 has a probability of 3/4, 0 one of 1/2."""
    labels, half = [[1, 1], [0, 0]], math.log(2)
    assert float(loss_of(SEVERAL, TWO, labels=labels)) == pytest.approx((RIGHT + half + WRONG + half) / 4)
    assert float(loss_of(SEVERAL, TWO, labels=labels, weights=[1.0, 0.0])) == pytest.approx((RIGHT + half) / 2)
    sums = SEVERAL.example_sums(TWO, {"labels": np.array(labels), "weights": np.ones(2, "float32")})
    assert np.asarray(sums["correct"]).tolist() == [2, 0]  # a probability of 1/2 is enough
    far = np.array([[1e4, -1e4]], "float32")
    assert float(loss_of(SEVERAL, far, labels=[[0, 0]])) == 5000 and float(loss_of(SEVERAL, far, labels=[[1, 0]])) == 0
