"""Masked-LM loss alone, as RoBERTa trains. Shapes: B batch, P predictions, V vocabulary."""

from __future__ import annotations

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits

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
