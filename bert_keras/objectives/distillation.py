"""An objective beside a teacher: a model learns the outputs of a larger one, and the labels.

    loss = (1 - weight) loss of the labels + weight loss of the teacher's outputs

For logits this is the mean divergence KL(softmax(teacher / t) || softmax(model / t)), times t^2, so that its gradients
do not shrink with the temperature t (G. Hinton et al. 2015, arXiv 1503.02531, section 2). For numbers and vectors it is
the mean squared error; for vectors of length 1 that is 2 - 2 cos, the loss of one sentence encoder that learns
another's vectors (N. Reimers, I. Gurevych 2020, arXiv 2004.09813, equation 1).

Shapes: B batch, N classes, C texts of a row, T tokens, H hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_keras.data.array_batches import TEACHER_OUTPUTS, TEACHER_SPANS, TEACHER_TOKENS, TOKEN_LABELS, WEIGHTS
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.settings import DistillationSettings

_LOSS, _WEIGHT = "teacher_loss", "teacher_weight"


def distilled(objective: Objective, settings: DistillationSettings) -> Objective:
    """An objective of batches that have the teacher's outputs, under the names in `bert_keras.data.array_batches`.

    `teacher_outputs` are logits [B, N] of `classification`, `multi_label` or `multiple_choice`, numbers [B], or vectors
    [B, C, H]; `teacher_tokens` logits [B, N, T] of tokens, which count where `token_labels` [B, T] are not below 0;
    `teacher_start_logits` and `teacher_end_logits` [B, T] of spans.
    """
    share, temperature = settings.weight, settings.temperature

    def losses(outputs, batch):
        """Losses and their weights, float32 [B, ...]; the weights of examples are not in them."""
        if objective.name == "tagging":
            logits = ops.transpose(batch[TEACHER_TOKENS], (0, 2, 1))
            return _divergence(outputs, logits, temperature), ops.cast(batch[TOKEN_LABELS] >= 0, "float32")
        if objective.name == "span":
            start, end = (_divergence(outputs[name], batch[key], temperature) for name, key in TEACHER_SPANS.items())
            return 0.5 * (start + end), ops.ones_like(start)
        teacher = ops.cast(batch[TEACHER_OUTPUTS], "float32")
        if objective.name in ("classification", "multiple_choice"):
            values = _divergence(outputs, teacher, temperature)
        elif objective.name == "multi_label":
            values = ops.sum(_binary_divergence(outputs, teacher, temperature), axis=-1)
        elif objective.name in ("regression", "ranking"):
            values = ops.square(ops.cast(outputs, "float32") - teacher)
        else:
            values = ops.mean(ops.sum(ops.square(ops.cast(outputs, "float32") - teacher), axis=-1), axis=-1)
        return values, ops.ones_like(values)

    def example_sums(outputs, batch):
        values, counts = losses(outputs, batch)
        rows = ops.cast(batch[WEIGHTS], "float32")
        counts = ops.reshape(counts, (ops.shape(rows)[0], -1)) * rows[:, None]
        sums = {_LOSS: ops.sum(ops.reshape(values, ops.shape(counts)) * counts, -1), _WEIGHT: ops.sum(counts, -1)}
        return {**objective.example_sums(outputs, batch), **sums}

    def totals(batch):
        rows = ops.cast(batch[WEIGHTS], "float32")
        if objective.name == "tagging":
            rows = rows[:, None] * ops.cast(batch[TOKEN_LABELS] >= 0, "float32")
        return (*objective.totals(batch), ops.sum(rows))

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
