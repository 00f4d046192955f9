"""A student of masked tokens beside its teacher: gradients are the student's, and none is left when both are equal."""

import dataclasses
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models.layers import SelfAttention
from bert_keras.models.left_to_right import GptBert
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import gpt_bert, mlm
from bert_keras.objectives.distillation import MASKED, Taught, distilled
from bert_keras.objectives.registry import pretraining_model
from bert_keras.objectives.settings import DistillationSettings, PretrainingSettings
from bert_keras.objectives.table import PARTS
from tests.support.models.every_model import TINY, features, packed
from tests.support.models.small_training import built
from tests.support.models.tiny_encoders import ALBERT, MODERN

QUIET = dataclasses.replace(TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3)
FAMILIES = {"gpt_bert": "gpt_bert", "span_boundary": "spanbert"}
BATCH = {name: tf.constant(values) for name, values in features((12, 12, 11, 7)).items()}


def student_and_objective(name):
    family = FAMILIES.get(name, "bert")
    examples = "full_sentences" if name in ("mlm", *FAMILIES) else name
    create, objective = pretraining_model(PretrainingSettings(family), examples, QUIET, 0)
    assert objective.name == name
    return create(), objective


def gradients(taught, objective, weight=1.0, variables=None):
    learned = distilled(objective, DistillationSettings(weight, relations_weight=1.0))
    with tf.GradientTape() as tape:
        sums = learned.example_sums(taught(BATCH, training=True), BATCH)
        loss = learned.loss({key: tf.reduce_sum(value) for key, value in sums.items()}, learned.totals(BATCH))
    return tape.gradient(loss, [v.value for v in variables or taught.trainable_variables])


def largest(gradients):
    return max(float(tf.reduce_max(tf.abs(gradient))) for gradient in gradients)


@pytest.mark.parametrize("name", MASKED)
def test_an_equal_teacher_leaves_no_gradient_and_another_one_does(name):
    student, objective = student_and_objective(name)
    teacher = built(BertForPreTraining, QUIET, seed=0)
    equal, other = (Taught(student, model, 2) for model in (teacher, built(BertForPreTraining, QUIET, seed=1)))
    assert largest(gradients(equal, objective, weight=0.5)) > 1e-2
    assert largest(gradients(equal, objective)) < 1e-5
    assert largest(gradients(other, objective)) > 1e-2
    assert [v.path for v in other.trainable_variables] == [v.path for v in student.trainable_variables]
    assert set(gradients(other, objective, variables=other.teacher.weights)) == {None}


def test_the_teacher_has_no_dropout_and_the_training_s_precision():
    """And the model that it was made of does not change with it."""
    drops = dataclasses.replace(QUIET, hidden_dropout_prob=0.5)
    teacher = built(BertForPreTraining, drops, seed=1)
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        taught = Taught(built(BertForPreTraining, QUIET), teacher)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    logits = taught(BATCH, training=True)["teacher_outputs"]
    assert logits.dtype == "bfloat16" and taught.teacher.weights[0].dtype == "float32"
    expected = teacher(BATCH, training=False)["mlm_logits"]
    np.testing.assert_allclose(tf.cast(logits, "float32"), expected, atol=0.1 * np.abs(expected).max())
    assert teacher.trainable and not taught.teacher.trainable


def test_objectives_with_a_teacher_are_those_of_masked_tokens():
    assert {*MASKED} == {name for name, (first, *_) in PARTS.items() if first.key == "mlm"} - {"electra"}


WIDE = dataclasses.replace(QUIET, hidden_size=48, num_attention_heads=8, num_hidden_layers=1)
STUDENTS = {
    "narrow": (BertForPreTraining, QUIET, BATCH),
    "pre-norm": (BertForPreTraining, dataclasses.replace(MODERN, initializer_range=0.3), BATCH),
    "shared": (BertForPreTraining, dataclasses.replace(ALBERT, initializer_range=0.3), BATCH),
    "packed": (BertForPreTraining, QUIET, {name: tf.constant(values) for name, values in packed().items()}),
    "gpt_bert": (GptBert, QUIET, BATCH),
}


@pytest.mark.parametrize("name", STUDENTS)
def test_relations_are_those_of_the_queries_keys_and_values_of_the_last_layers(name):
    """Against NumPy, from what the last attention layer read."""
    kind, config, batch = STUDENTS[name]
    taught = Taught(built(kind, config), built(BertForPreTraining, WIDE, seed=1), heads=4)
    with mock.patch.object(SelfAttention, "call", autospec=True, side_effect=SelfAttention.call) as calls:
        outputs = taught(batch, training=True)
    read = {id(call.args[0]): call.args[1].numpy() for call in calls.call_args_list}
    rows = slice(None, None, 2 if kind is GptBert else 1)
    mask = batch["input_mask"].numpy()[rows]
    sequences = batch.get("sequence_ids", batch["input_mask"]).numpy()[rows]
    visible = (sequences[:, None, :, None] == sequences[:, None, None, :]) & (mask[:, None, None] > 0)

    def relations(model, part, rows=slice(None)):
        layer = model.backbone.encoder_layers[-1].attention
        x = read[id(layer)][rows] @ getattr(layer, part).kernel.numpy()
        x = x + getattr(layer, part).bias.numpy() if config.use_bias or model is taught.teacher else x
        x = x.reshape(*x.shape[:2], 4, -1).transpose(0, 2, 1, 3)
        odds = np.where(visible, np.exp(x @ x.swapaxes(2, 3) / np.sqrt(x.shape[3])), 1e-30)
        return odds / odds.sum(-1, keepdims=True)

    expected = 0.0
    for part in ("query", "key", "value"):
        ours, theirs = relations(taught.student, part, rows), relations(taught.teacher, part)
        expected += (theirs * np.log(theirs / ours)).sum(-1).mean(1)
    np.testing.assert_allclose(outputs["relation_losses"] * mask, expected * mask, atol=2e-5)
    objective = gpt_bert.OBJECTIVE if kind is GptBert else mlm.OBJECTIVE

    def loss(settings):
        learned = distilled(objective, settings)
        sums = {key: tf.reduce_sum(value) for key, value in learned.example_sums(outputs, batch).items()}
        assert {*sums} == {*learned.sums}
        value = learned.loss(sums, learned.totals(batch))
        metrics = learned.metrics({key: float(value) for key, value in sums.items()})
        assert metrics["loss"] == pytest.approx(float(value), rel=1e-5)
        return float(value), metrics.get("relations_loss")

    mean = (expected * mask).sum() / mask.sum()
    without, with_relations = loss(DistillationSettings()), loss(DistillationSettings(relations_weight=0.7))
    assert with_relations == pytest.approx((without[0] + 0.7 * mean, mean), rel=1e-5)
    assert without[1] is None and mean > 0.01


def test_without_relations_nothing_is_computed_for_them():
    taught = Taught(built(BertForPreTraining, QUIET), built(BertForPreTraining, WIDE))
    assert {*taught(BATCH)} == {*taught.student(BATCH), "teacher_outputs"}
