"""The teacher's share of a loss, against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from bert_keras.data.array_batches import TEACHER_OUTPUTS, TEACHER_SPANS, TEACHER_TOKENS
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.objectives import gpt_bert, mlm
from bert_keras.objectives.distillation import distilled
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.tasks.task_types import TASK_TYPES

MASKED_KINDS = {"mlm": mlm.OBJECTIVE, "gpt_bert": gpt_bert.OBJECTIVE}
RNG = np.random.default_rng(0)
ROWS, CLASSES, TOKENS = 5, 3, 4
# The last row fills up the batch.
WEIGHTS = np.array([1, 1, 1, 1, 0], np.float32)
PADDED = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
TAGGED = np.array([[0, -1, 2, -1], [1, 1, -1, -1], [-1, 2, -1, 0], [2, -1, -1, -1], [0, 1, 2, 0]])


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def softmax(logits):
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def divergence(model, teacher, temperature):
    old, new = softmax(teacher / temperature), softmax(model / temperature)
    return temperature**2 * (old * np.log(np.maximum(old, 1e-30) / np.maximum(new, 1e-30))).sum(-1)


def binary(logits):
    return np.stack([np.zeros_like(logits), logits], -1)


def case(kind):
    """Outputs, batch, and the teacher's loss of each row (or token) with its weight."""
    labels = RNG.integers(0, 2, ROWS)
    if kind in MASKED_KINDS:
        outputs = {name: draw(ROWS, TOKENS, CLASSES) for name in ("mlm_logits", TEACHER_OUTPUTS)}
        used = (TAGGED >= 0).astype(np.float32)
        batch = {"masked_lm_ids": np.maximum(TAGGED, 0), "masked_lm_weights": used}
        if kind == "gpt_bert":  # of rows 0, 2, 4 the masked tokens, of the others the next ones
            batch |= {"input_ids": TAGGED + 1, "input_mask": np.ones_like(TAGGED), "masked_lm_positions": TAGGED * 0}
            outputs = {name: logits[::2] for name, logits in outputs.items()} | {"lm_logits": draw(2, TOKENS, CLASSES)}
            used = used[::2]
        return outputs, batch, divergence(outputs["mlm_logits"], outputs[TEACHER_OUTPUTS], 3.0), used
    if kind == "tagging":
        outputs, teacher = draw(ROWS, TOKENS, CLASSES), draw(ROWS, TOKENS, CLASSES)
        batch = {"token_labels": TAGGED, TEACHER_TOKENS: np.moveaxis(teacher, 2, 1)}
        return outputs, batch, divergence(outputs, teacher, 3.0), (TAGGED >= 0) * WEIGHTS[:, None]
    if kind == "span":
        outputs, teacher = ({name: draw(ROWS, TOKENS) for name in TEACHER_SPANS} for _ in range(2))
        batch = {key: teacher[name] for name, key in TEACHER_SPANS.items()}
        batch |= {"start_positions": labels, "end_positions": labels + 1, "input_mask": PADDED}
        masked = [[logits[name] - 1e4 * (1 - PADDED) for name in TEACHER_SPANS] for logits in (outputs, teacher)]
        values = [divergence(model, of_teacher, 3.0) for model, of_teacher in zip(*masked, strict=True)]
        return outputs, batch, np.mean(values, 0), WEIGHTS
    if kind in ("similarity", "retrieval"):
        outputs, teacher = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (draw(ROWS, 2, 8), draw(ROWS, 2, 8)))
        return outputs, {TEACHER_OUTPUTS: teacher}, (2 - 2 * (outputs * teacher).sum(-1)).mean(-1), WEIGHTS
    if kind in ("regression", "ranking"):
        outputs, teacher = draw(ROWS), draw(ROWS)
        return outputs, {TEACHER_OUTPUTS: teacher, "labels": np.abs(draw(ROWS))}, (outputs - teacher) ** 2, WEIGHTS
    outputs, teacher = draw(ROWS, CLASSES), draw(ROWS, CLASSES)
    batch = {TEACHER_OUTPUTS: teacher, "labels": labels}
    if kind == "multi_label":
        batch["labels"] = RNG.integers(0, 2, (ROWS, CLASSES))
        return outputs, batch, divergence(binary(outputs), binary(teacher), 3.0).mean(-1), WEIGHTS
    return outputs, batch, divergence(outputs, teacher, 3.0), WEIGHTS


@pytest.mark.parametrize("kind", [*TASK_TYPES, *MASKED_KINDS])
def test_the_loss_is_that_of_the_labels_and_of_the_teacher(kind):
    outputs, batch, values, weights = case(kind)
    batch = {**batch, "weights": WEIGHTS}
    plain = MASKED_KINDS[kind] if kind in MASKED_KINDS else TASK_TYPES[kind].objective
    objective = distilled(plain, DistillationSettings(weight=0.3, temperature=3.0))

    def losses(of):
        sums = {name: np.sum(value) for name, value in of.example_sums(outputs, batch).items()}
        assert {*sums} == {*of.sums}
        return float(of.loss(sums, of.totals(batch))), of.metrics({name: float(v) for name, v in sums.items()})

    teacher = (values * weights).sum() / weights.sum()
    (hard, _), (loss, metrics) = losses(plain), losses(objective)
    assert loss == pytest.approx(0.7 * hard + 0.3 * teacher, rel=1e-5)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics["teacher_loss"] == pytest.approx(teacher, rel=1e-5)


@pytest.mark.parametrize("kind", ["span", "tagging", "classification", "multi_label", "regression"])
def test_outputs_may_be_bfloat16(kind):
    """As TensorFlow's step passes them in mixed precision; it adds no float32."""
    outputs, batch, *_ = case(kind)
    batch = {name: ops.convert_to_tensor(value) for name, value in {**batch, "weights": WEIGHTS}.items()}
    rounded = keras.tree.map_structure(lambda value: ops.cast(value, "bfloat16"), outputs)
    objective = distilled(TASK_TYPES[kind].objective, DistillationSettings())
    exact, sums = (objective.example_sums(of, batch)["teacher_loss"] for of in (outputs, rounded))
    np.testing.assert_allclose(ops.cast(sums, "float32"), exact, rtol=0.05)


@pytest.mark.parametrize(
    ("field", "value"), [("weight", 0.0), ("weight", 1.5), ("temperature", 0.0), ("relations_weight", -1.0)]
)
def test_refuses_settings(field, value):
    with pytest.raises(ValueError, match=f"distillation.{field} is {value}"):
        DistillationSettings(**{field: value})


@pytest.mark.parametrize(
    ("student", "teacher", "asked", "heads"),
    [
        ((64, 2), (192, 4), 0, 4),
        ((64, 2), (192, 12), 0, 2),
        ((64, 2), (192, 4), 32, 32),
        ((96, 3), (160, 5), 0, "96 and 160, the widths of student and teacher, do not both divide by 3 or 5; set a"),
        ((64, 2), (192, 4), 48, "64 and 192, .* do not both divide by 48; set a common divisor of them"),
        ((64, 2), None, 0, "model.encoder is transformer, the teacher's static, and only transformers attend; set"),
    ],
)
def test_relation_heads_divide_both_widths(student, teacher, asked, heads):
    settings = DistillationSettings(relations_weight=1.0, relation_heads=asked)
    static = BertConfig(num_hidden_layers=0, encoder="static")
    student, teacher = (
        BertConfig(hidden_size=size[0], num_attention_heads=size[1]) if size else static for size in (student, teacher)
    )
    assert DistillationSettings(relation_heads=asked).heads(student, teacher) == 0
    if isinstance(heads, int):
        assert settings.heads(student, teacher) == heads
        return
    with pytest.raises(InputError, match=heads):
        settings.heads(student, teacher)
