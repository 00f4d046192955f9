"""An objective beside a teacher: a model learns the outputs of a larger one, and the labels.

    loss = (1 - weight) loss of the labels + weight loss of the teacher's outputs + relations_weight loss of relations

For logits the teacher's loss is the mean divergence KL(softmax(teacher / t) || softmax(model / t)), times t^2, so that
its gradients do not shrink with the temperature t (G. Hinton et al. 2015, arXiv 1503.02531, section 2). For numbers and
vectors it is the mean squared error; for vectors of length 1 that is 2 - 2 cos, the loss of one sentence encoder that
learns another's vectors (N. Reimers, I. Gurevych 2020, arXiv 2004.09813, equation 1).

A task's teacher answers each row once, before the training (`bert_keras.finetuning.teacher`). The teacher of a
pre-training is in its step (`Taught`), because masks are new in each epoch and logits of a whole vocabulary are large.
There a student may also learn how the tokens of a sequence relate in the teacher's last layer: queries to queries, keys
to keys and values to values (`Taught.relation_losses`; W. Wang et al. 2021, arXiv 2012.15828, section 3.1).

Shapes: B batch, N classes, C texts of a row, T tokens, H hidden, P predictions, V vocabulary.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_keras.data.array_batches import TEACHER_OUTPUTS, TEACHER_SPANS, TEACHER_TOKENS, TOKEN_LABELS, WEIGHTS
from bert_keras.models.layers import MASKED_SCORE
from bert_keras.models.left_to_right import GptBert, even_rows
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.settings import DistillationSettings

# Objectives of pre-training whose masked tokens a teacher predicts, too.
MASKED = ("mlm_nsp", "mlm_sop", "mlm", "gpt_bert", "span_boundary")
RELATION_LOSSES = "relation_losses"


class Taught(keras.Model):
    """A model of masked tokens beside its teacher, which is neither trained nor in checkpoints.

    Call with the student's inputs. Returns its outputs, `teacher_outputs` float: the teacher's logits, without dropout,
    in the shape of the student's `mlm_logits`, and with `heads` also `relation_losses` float32 [B, T].

    Args:
        student: the model to train.
        teacher: a built `bert_keras.models.pretraining_heads.MaskedLanguageModel`, of which a copy is made: on the
            training's devices, in its precision.
        heads: relation heads (`DistillationSettings.heads`); 0: no relations.
    """

    def __init__(self, student: keras.Model, teacher: keras.Model, heads: int = 0):
        super().__init__()
        self.student, self.teacher = student, type(teacher).from_config(teacher.get_config())
        self.teacher.build()
        self.teacher.set_weights(teacher.get_weights())
        self.teacher.trainable = False
        self.heads, self.built = heads, True

    def call(self, inputs, training=False):
        outputs = self.student(inputs, training=training)
        masked = even_rows(inputs) if training and isinstance(self.student, GptBert) else inputs
        taught = self.teacher(masked, training=False)
        outputs = {**outputs, TEACHER_OUTPUTS: ops.stop_gradient(taught["mlm_logits"])}
        if self.heads:
            outputs[RELATION_LOSSES] = self.relation_losses(outputs, taught, masked)
        return outputs

    def relation_losses(self, outputs, taught, inputs):
        """The divergence of the relations of each token, padding too, from the teacher's, in nats: float32 [B, T].

        The relations of a token are softmax(x x^T / sqrt(width of x)) over the tokens of its sequence, where x are the
        queries of a head, before any rotation. The layer's whole width is split into `heads`, whose mean counts; the
        losses of queries, keys and values are added.
        """
        attended = ops.cast(inputs["input_mask"], "float32")[:, None, None, :]
        if "sequence_ids" in inputs:
            numbers = inputs["sequence_ids"]
            attended = attended * ops.cast(ops.equal(numbers[:, None, :, None], numbers[:, None, None, :]), "float32")

        def scores(x):
            """[B, T, H] -> float32 [B, heads, T, T]."""
            size = x.shape[-1] // self.heads
            x = ops.transpose(ops.reshape(x, (*ops.shape(x)[:2], self.heads, size)), (0, 2, 1, 3))
            products = ops.cast(ops.matmul(x, ops.swapaxes(x, -1, -2)), "float32")
            return products * size**-0.5 + (1.0 - attended) * MASKED_SCORE

        pairs = zip(_last_projections(self.student, outputs), _last_projections(self.teacher, taught), strict=True)
        return sum(
            ops.mean(_divergence(scores(model), scores(ops.stop_gradient(teacher)), 1.0), axis=1)
            for model, teacher in pairs
        )


def _last_projections(model, outputs):
    """The queries, keys and values of a model's last layer, [B, T, H] each."""
    # Computed again from the layer's input: an attention layer that returned them would change each layer above it.
    layer = model.backbone.encoder_layers[-1]
    x = [outputs["embedding_output"], *outputs["encoder_outputs"]][-2]
    if layer.config.norm_place == "pre":
        x = layer.attention_layer_norm(x)
    return [project(x) for project in (layer.attention.query, layer.attention.key, layer.attention.value)]


def distilled(objective: Objective, settings: DistillationSettings) -> Objective:
    """An objective of masked tokens for a `Taught` model, or one of a task.

    The batches of a task have the teacher's outputs, under the names in `bert_keras.data.array_batches`:
    `teacher_outputs` are logits [B, N] of `classification`, `multi_label` or `multiple_choice`, numbers [B], or vectors
    [B, C, H]; `teacher_tokens` logits [B, N, T] of tokens, which count where `token_labels` [B, T] are not below 0;
    `teacher_start_logits` and `teacher_end_logits` [B, T] of spans.
    """
    temperature = settings.temperature

    def losses(outputs, batch):
        """Losses, float32 [B, ...]."""
        if objective.name in MASKED:
            return _divergence(outputs["mlm_logits"], outputs[TEACHER_OUTPUTS], temperature)
        if objective.name == "tagging":
            return _divergence(outputs, ops.transpose(batch[TEACHER_TOKENS], (0, 2, 1)), temperature)
        if objective.name == "span":
            # A teacher's logits are 0 beyond the length of their call, which is not the length of this batch.
            padding = (1.0 - ops.cast(batch["input_mask"], "float32")) * MASKED_SCORE
            pairs = [(ops.cast(outputs[name], "float32"), batch[key]) for name, key in TEACHER_SPANS.items()]
            start, end = (_divergence(model + padding, teacher + padding, temperature) for model, teacher in pairs)
            return 0.5 * (start + end)
        teacher = ops.cast(batch[TEACHER_OUTPUTS], "float32")
        if objective.name in ("classification", "multiple_choice"):
            return _divergence(outputs, teacher, temperature)
        if objective.name == "multi_label":
            # Each label has two classes, whose logits are 0 and this one.
            model, teacher = (ops.stack([ops.zeros_like(x), x], axis=-1) for x in (outputs, teacher))
            return ops.mean(_divergence(model, teacher, temperature), axis=-1)
        squares = ops.square(ops.cast(outputs, "float32") - teacher)
        return squares if objective.name in ("regression", "ranking") else ops.mean(ops.sum(squares, axis=-1), axis=-1)

    def counts(batch):
        """The weights of the losses, float32 [B, losses of a row]."""
        if objective.name in MASKED:
            return ops.cast(batch["masked_lm_weights"], "float32")
        weights = ops.cast(batch[WEIGHTS], "float32")[:, None]
        return weights * ops.cast(batch[TOKEN_LABELS] >= 0, "float32") if objective.name == "tagging" else weights

    whole = (*objective.whole_batch, TEACHER_OUTPUTS) if objective.whole_batch else ()
    objective = dataclasses.replace(objective, whole_batch=whole)
    learned = _beside(objective, 1 - settings.weight, settings.weight, "teacher", losses, counts)
    if not settings.relations_weight:
        return learned
    return _beside(
        *(learned, 1.0, settings.relations_weight, "relations"),
        losses=lambda outputs, batch: outputs[RELATION_LOSSES],
        counts=lambda batch: ops.cast(batch["input_mask"], "float32"),
    )


def _beside(
    objective: Objective,
    weight: float,
    added_weight: float,
    name: str,
    losses: Callable[[Any, Any], Any],
    counts: Callable[[Any], Any],
) -> Objective:
    """An objective with `weight` times its loss and `added_weight` times the mean of further losses.

    `losses(outputs, batch)` and their weights, `counts(batch)`, are float32 [B, losses of a row]; of a GPT-BERT in
    training B and the batch are the masked rows. The sums `NAME_loss` and `NAME_weight` are added.
    """
    loss_name, weight_name = f"{name}_loss", f"{name}_weight"

    def rows(batch, training=True):
        return even_rows(batch) if training and objective.name == "gpt_bert" else batch

    def example_sums(outputs, batch):
        masked = rows(batch, training=objective.name == "gpt_bert" and "lm_logits" in outputs)
        weights = counts(masked)
        values = ops.reshape(losses(outputs, masked), ops.shape(weights))
        sums = {loss_name: ops.sum(values * weights, -1), weight_name: ops.sum(weights, -1)}
        return {**objective.example_sums(outputs, batch), **sums}

    def totals(batch):
        return (*objective.totals(batch), ops.sum(counts(rows(batch))))

    def loss(sums, totals):
        added = ops.divide_no_nan(sums[loss_name], totals[-1])
        return weight * objective.loss(sums, totals[:-1]) + added_weight * added

    def metrics(sums: Mapping[str, float]) -> dict[str, float]:
        values: dict[str, Any] = objective.metrics(sums)
        added = sums[loss_name] / max(sums[weight_name], 1e-5)
        return {**values, "loss": weight * values["loss"] + added_weight * added, loss_name: added}

    return dataclasses.replace(
        objective,
        sums=(*objective.sums, loss_name, weight_name),
        example_sums=example_sums,
        totals=totals,
        loss=loss,
        metrics=metrics,
    )


def _divergence(logits, teacher, temperature: float):
    """Logits of the model and of the teacher, [..., N] -> t^2 KL(teacher || model) [...], in nats."""
    model, teacher = (ops.log_softmax(ops.cast(x, "float32") / temperature, axis=-1) for x in (logits, teacher))
    return temperature**2 * ops.sum(ops.exp(teacher) * (teacher - model), axis=-1)
