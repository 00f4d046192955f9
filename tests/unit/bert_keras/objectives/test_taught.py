"""A student of masked tokens beside its teacher: gradients are the student's, and none is left when both are equal."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives.distillation import MASKED, Taught, distilled
from bert_keras.objectives.registry import pretraining_model
from bert_keras.objectives.settings import DistillationSettings, PretrainingSettings
from bert_keras.objectives.table import PARTS
from tests.support.models.every_model import TINY, features
from tests.support.models.small_training import built

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
    learned = distilled(objective, DistillationSettings(weight))
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
    equal, other = Taught(student, teacher), Taught(student, built(BertForPreTraining, QUIET, seed=1))
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
