"""Masked-LM loss only, as in RoBERTa. Shapes: B batch, P predictions, V vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bert_keras.objectives.mlm_nsp import means_of, nll_and_hits, sums_of
from bert_keras.objectives.objective import Objective

# Keys of `example_sums`.
SUMS = ("mlm_nll", "mlm_correct", "mlm_weight")


def example_sums(outputs, labels):
    """Sums over the predictions of each example.

    Args:
        outputs: dict with `mlm_logits` float [B, P, V].
        labels: dict with `masked_lm_ids` int [B, P] and `masked_lm_weights` float [B, P] (0 = padding).

    Returns:
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood in nats.
    """
    weights = ops.cast(labels["masked_lm_weights"], "float32")
    return sums_of("mlm", weights, *nll_and_hits(outputs["mlm_logits"], labels["masked_lm_ids"]))


def totals(labels):
    """The denominator of the loss: number of predicted tokens."""
    return (ops.sum(ops.cast(labels["masked_lm_weights"], "float32")),)


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Loss (nats per prediction) and accuracy from summed `SUMS`."""
    metrics = means_of("mlm", sums)
    return {"loss": metrics["mlm_loss"], **metrics}


OBJECTIVE = Objective(
    name="mlm",
    sums=SUMS,
    example_sums=example_sums,
    totals=totals,
    loss=lambda sums, totals: sums["mlm_nll"] / (totals[0] + 1e-5),
    metrics=metrics_of,
)
