"""An objective beside a teacher: a model learns the outputs of a larger one, and the labels.

    loss = (1 - weight) loss of the labels + weight loss of the teacher's outputs

For logits this is the mean divergence KL(softmax(teacher / t) || softmax(model / t)), times t^2, so that its gradients
do not shrink with the temperature t (G. Hinton et al. 2015, arXiv 1503.02531, section 2). For numbers and vectors it is
the mean squared error; for vectors of length 1 that is 2 - 2 cos, the loss of one sentence encoder that learns
another's vectors (N. Reimers, I. Gurevych 2020, arXiv 2004.09813, equation 1).

A task's teacher answers each row once, before the training (`bert_keras.finetuning.teacher`). The teacher of a
pre-training is in its step (`Taught`), because masks are new in each epoch and logits of a whole vocabulary are large.

Shapes: B batch, N classes, C texts of a row, T tokens, H hidden, P predictions, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_keras.data.array_batches import TEACHER_OUTPUTS, TEACHER_SPANS, TEACHER_TOKENS, TOKEN_LABELS, WEIGHTS
from bert_keras.models.left_to_right import GptBert, even_rows
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.settings import DistillationSettings

# Objectives of pre-training whose masked tokens a teacher predicts, too.
MASKED = ("mlm_nsp", "mlm_sop", "mlm", "gpt_bert", "span_boundary")
_LOSS, _WEIGHT = "teacher_loss", "teacher_weight"


class Taught(keras.Model):
    """A model of masked tokens beside its teacher, which is neither trained nor in checkpoints.

    Call with the student's inputs. Returns its outputs and `teacher_outputs` float: the teacher's logits, without
    dropout, in the shape of the student's `mlm_logits`.

    Args:
        student: the model to train.
        teacher: a built `bert_keras.models.pretraining_heads.MaskedLanguageModel`, of which a copy is made: on the
            training's devices, in its precision.
    """

    def __init__(self, student: keras.Model, teacher: keras.Model):
        super().__init__()
        self.student, self.teacher = student, type(teacher).from_config(teacher.get_config())
        self.teacher.build()
        self.teacher.set_weights(teacher.get_weights())
        self.teacher.trainable = False
        self.built = True

    def call(self, inputs, training=False):
        outputs = self.student(inputs, training=training)
        masked = even_rows(inputs) if training and isinstance(self.student, GptBert) else inputs
        logits = self.teacher(masked, training=False)["mlm_logits"]
        return {**outputs, TEACHER_OUTPUTS: ops.stop_gradient(logits)}


def distilled(objective: Objective, settings: DistillationSettings) -> Objective:
    """An objective of masked tokens for a `Taught` model, or one of a task.

    The batches of a task have the teacher's outputs, under the names in `bert_keras.data.array_batches`:
    `teacher_outputs` are logits [B, N] of `classification`, `multi_label` or `multiple_choice`, numbers [B], or vectors
    [B, C, H]; `teacher_tokens` logits [B, N, T] of tokens, which count where `token_labels` [B, T] are not below 0;
    `teacher_start_logits` and `teacher_end_logits` [B, T] of spans.
    """
    share, temperature = settings.weight, settings.temperature

    def losses(outputs, batch):
        """Losses, float32 [B, ...]."""
        if objective.name in MASKED:
            return _divergence(outputs["mlm_logits"], outputs[TEACHER_OUTPUTS], temperature)
        if objective.name == "tagging":
            return _divergence(outputs, ops.transpose(batch[TEACHER_TOKENS], (0, 2, 1)), temperature)
        if objective.name == "span":
            start, end = (_divergence(outputs[name], batch[key], temperature) for name, key in TEACHER_SPANS.items())
            return 0.5 * (start + end)
        teacher = ops.cast(batch[TEACHER_OUTPUTS], "float32")
        if objective.name in ("classification", "multiple_choice"):
            return _divergence(outputs, teacher, temperature)
        if objective.name == "multi_label":
            return ops.sum(_binary_divergence(outputs, teacher, temperature), axis=-1)
        squares = ops.square(ops.cast(outputs, "float32") - teacher)
        return squares if objective.name in ("regression", "ranking") else ops.mean(ops.sum(squares, axis=-1), axis=-1)

    def counts(batch, training=True):
        """The weights of the losses, float32 [B, losses of a row]."""
        if objective.name in MASKED:
            rows = even_rows(batch) if training and objective.name == "gpt_bert" else batch
            return ops.cast(rows["masked_lm_weights"], "float32")
        weights = ops.cast(batch[WEIGHTS], "float32")[:, None]
        return weights * ops.cast(batch[TOKEN_LABELS] >= 0, "float32") if objective.name == "tagging" else weights

    def example_sums(outputs, batch):
        weights = counts(batch, training=objective.name == "gpt_bert" and "lm_logits" in outputs)
        values = ops.reshape(losses(outputs, batch), ops.shape(weights))
        sums = {_LOSS: ops.sum(values * weights, -1), _WEIGHT: ops.sum(weights, -1)}
        return {**objective.example_sums(outputs, batch), **sums}

    def totals(batch):
        return (*objective.totals(batch), ops.sum(counts(batch)))

    def loss(sums, totals):
        teacher = ops.divide_no_nan(sums[_LOSS], totals[-1])
        return (1 - share) * objective.loss(sums, totals[:-1]) + share * teacher

    def metrics(sums: Mapping[str, float]) -> dict[str, float]:
        values: dict[str, Any] = objective.metrics(sums)
        teacher = sums[_LOSS] / max(sums[_WEIGHT], 1e-5)
        return {**values, "loss": (1 - share) * values["loss"] + share * teacher, _LOSS: teacher}

    names = (*objective.sums, _LOSS, _WEIGHT)
    gathered = (*objective.whole_batch, TEACHER_OUTPUTS) if objective.whole_batch else ()
    return dataclasses.replace(
        objective,
        sums=names,
        whole_batch=gathered,
        example_sums=example_sums,
        totals=totals,
        loss=loss,
        metrics=metrics,
    )


def _divergence(logits, teacher, temperature: float):
    """Logits of the model and of the teacher, [..., N] -> t^2 KL(teacher || model) [...], in nats."""
    model, teacher = (ops.log_softmax(ops.cast(x, "float32") / temperature, axis=-1) for x in (logits, teacher))
    return temperature**2 * ops.sum(ops.exp(teacher) * (teacher - model), axis=-1)


def _binary_divergence(logits, teacher, temperature: float):
    """`_divergence` of two classes whose logits are 0 and these, [...] -> [...]."""
    model, teacher = (
        ops.stack([ops.zeros_like(x), x], axis=-1) for x in (ops.cast(logits, "float32"), ops.cast(teacher, "float32"))
    )
    return _divergence(model, teacher, temperature)
