"""Masked-LM and span boundary loss of SpanBERT (arXiv 1907.10529, section 3; FACTS D9).

Shapes: B batch, T tokens, P predictions, V vocabulary. A span is a run of masked neighbours: spans that touch are one,
as in the original. Of the span "[MASK] [MASK] [MASK]" at positions 3 to 5 of

    [CLS] my dog [MASK] [MASK] [MASK] play . [SEP]

each token is predicted from the outputs at 2 ("dog") and 6 ("play") and its place in the span, 0 to 2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras import ops

from bert_keras.config import PretrainingSettings
from bert_keras.objectives import mlm
from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective

MAX_PAIR_TARGETS = PretrainingSettings.max_pair_targets
# What `example_sums` returns an example.
SUMS = ("mlm_nll", "mlm_correct", "mlm_weight", "sbo_nll", "sbo_correct", "sbo_weight")


class SpanBoundaries(NamedTuple):
    """Where the span of each masked token ends, and the token's place in it.

    Attributes:
        left: int [B, P], the position before the span.
        right: int [B, P], the position after it.
        places: int [B, P], from 0 up to `max_pair_targets` - 1.
        weights: float32 [B, P], `masked_lm_weights` or 0.0: not predicted. Then the others are in range, no more.
    """

    left: Any
    right: Any
    places: Any
    weights: Any


def span_boundaries(inputs, max_pair_targets: int) -> SpanBoundaries:
    """The spans of a batch, from its masked positions.

    Only the first `max_pair_targets` tokens of a span are predicted, and none unless both boundaries are tokens of the
    text: the original masks a text before it puts [CLS] and [SEP] around it, so neither is a boundary.

    Args:
        inputs: dict with `masked_lm_positions` int [B, P], ascending as far as `masked_lm_weights` float [B, P] is
            above 0; `input_mask` int [B, T] and, of packed rows, `sequence_ids` int [B, T].
        max_pair_targets: the original's default is 20, its released models' is 15.
    """
    positions = ops.cast(inputs["masked_lm_positions"], "int32")
    weights = ops.cast(inputs["masked_lm_weights"], "float32")
    # Which sequence of the row each token belongs to; 0 is padding, and what is beyond the row.
    sequence = ops.pad(ops.cast(inputs.get("sequence_ids", inputs["input_mask"]), "int32"), [[0, 0], [2, 2]])
    last = ops.shape(inputs["input_mask"])[1] - 1

    def sequence_of(at):
        return ops.take_along_axis(sequence, at + 2, axis=1)

    own = sequence_of(positions)
    places, following = _places(positions)
    left, right = ops.clip(positions - places - 1, 0, last), ops.clip(positions + following + 1, 0, last)
    # What is beyond a boundary is of the sequence too, so the boundary is not its [CLS] or last [SEP]; nor does the
    # span go on into another sequence, were its [CLS] masked.
    beyond = ops.logical_and(
        ops.equal(sequence_of(positions - places - 2), own), ops.equal(sequence_of(positions + following + 2), own)
    )
    predicted = ops.logical_and(beyond, places < max_pair_targets)
    return SpanBoundaries(
        left, right, ops.minimum(places, max_pair_targets - 1), weights * ops.cast(predicted, "float32")
    )


def _places(positions):
    """How many tokens of its span are before and how many after each masked one; int [B, P] all."""
    slots = ops.arange(ops.shape(positions)[1], dtype="int32")
    # Along a span positions and slots both go up by one: their difference stays. Past a gap it is larger, and in the
    # unused slots, whose position is 0, less than in any other.
    spans = positions - slots
    same = ops.equal(spans[:, :, None], spans[:, None, :])  # [B, P, P]
    before = ops.logical_and(same, slots[None, :] < slots[:, None])
    after = ops.logical_and(same, slots[None, :] > slots[:, None])
    return ops.sum(ops.cast(before, "int32"), axis=-1), ops.sum(ops.cast(after, "int32"), axis=-1)


def example_sums(outputs, labels):
    """Sums over the predictions of each example.

    Args:
        outputs: dict with `mlm_logits` and `sbo_logits` float [B, P, V], and `sbo_weights` float [B, P] (0 = not
            predicted).
        labels: dict with `masked_lm_ids` int [B, P] and `masked_lm_weights` float [B, P] (0 = padding).

    Returns:
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood in nats.
    """
    sums = {}
    for name, weights in (("mlm", labels["masked_lm_weights"]), ("sbo", outputs["sbo_weights"])):
        weights = ops.cast(weights, "float32")
        nll, hit = nll_and_hits(outputs[f"{name}_logits"], labels["masked_lm_ids"])
        sums[f"{name}_nll"] = ops.sum(weights * nll, -1)
        sums[f"{name}_correct"] = ops.sum(weights * hit, -1)
        sums[f"{name}_weight"] = ops.sum(weights, -1)
    return sums


def loss(sums):
    """The loss, nats a token, of `example_sums` summed over a batch: MLM / tokens + SBO / (targets + 1)."""
    return part_of_loss(sums, (sums["mlm_weight"], sums["sbo_weight"]))


def part_of_loss(sums, totals):
    """The same of a part of a global batch of these `totals`."""
    mlm_weight, sbo_weight = totals
    return sums["mlm_nll"] / ops.maximum(mlm_weight, 1.0) + sums["sbo_nll"] / (sbo_weight + 1.0)


def totals(labels, max_pair_targets: int):
    """What the losses divide by: how many tokens are masked, and how many of them their boundaries predict."""
    return (*mlm.totals(labels), ops.sum(span_boundaries(labels, max_pair_targets).weights))


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Losses (nats) and accuracies of summed `SUMS`; the loss is the sum of both means."""
    sbo_weight = max(sums["sbo_weight"], 1e-5)
    masked = mlm.metrics_of(sums)
    sbo_loss = sums["sbo_nll"] / sbo_weight
    return {
        **masked,
        "loss": masked["mlm_loss"] + sbo_loss,
        "sbo_loss": sbo_loss,
        "sbo_accuracy": sums["sbo_correct"] / sbo_weight,
    }


def objective(max_pair_targets: int) -> Objective:
    """The objective of a model of that `max_pair_targets`."""
    return Objective(
        name="span_boundary",
        sums=SUMS,
        example_sums=example_sums,
        totals=functools.partial(totals, max_pair_targets=max_pair_targets),
        loss=part_of_loss,
        metrics=metrics_of,
    )


OBJECTIVE = objective(MAX_PAIR_TARGETS)
