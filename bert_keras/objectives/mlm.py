"""Masked-LM loss alone, as RoBERTa trains. Shapes: B batch, P predictions, V vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective

# What `example_sums` returns an example.
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
    nll, hit = nll_and_hits(outputs["mlm_logits"], labels["masked_lm_ids"])
    return {
        "mlm_nll": ops.sum(weights * nll, -1),
        "mlm_correct": ops.sum(weights * hit, -1),
        "mlm_weight": ops.sum(weights, -1),
    }


def totals(labels):
    """What the loss divides by: how many tokens are predicted."""
    return (ops.sum(ops.cast(labels["masked_lm_weights"], "float32")),)


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Loss (nats a prediction) and accuracy of summed `SUMS`."""
    weight = max(sums["mlm_weight"], 1e-5)
    loss = sums["mlm_nll"] / weight
    return {"loss": loss, "mlm_loss": loss, "mlm_accuracy": sums["mlm_correct"] / weight}


OBJECTIVE = Objective(
    name="mlm",
    sums=SUMS,
    example_sums=example_sums,
    totals=totals,
    loss=lambda sums, totals: sums["mlm_nll"] / (totals[0] + 1e-5),
    metrics=metrics_of,
)
