"""Masked-LM and next-sentence loss (paper section 3.1).

One function gives sums and weights an example; training and the evaluation gate both reduce them, so they can
never disagree on what a loss or an accuracy is. Shapes: B batch, P predictions, V vocabulary, S sequences that a packed
row has room for (1 if rows are not packed).
"""

from __future__ import annotations

from keras import ops

# What `example_sums` returns an example, and the gate reads.
SUMS = ("mlm_nll", "mlm_correct", "mlm_weight", "nsp_nll", "nsp_correct", "nsp_weight")


def example_sums(outputs, labels):
    """Sums over the predictions of each example.

    Args:
        outputs: dict with `mlm_logits` float [B, P, V] and `nsp_logits` float [B, 2] or [B, S, 2].
        labels: dict with `masked_lm_ids` int [B, P], `masked_lm_weights` float [B, P] (0 = padding),
            `next_sentence_labels` int [B, S] (1 = random) and, of packed rows, `next_sentence_weights` float [B, S].

    Returns:
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood in nats.
    """
    mlm_weights, nsp_weights = weights(labels)
    mlm_nll, mlm_hit = nll_and_hits(outputs["mlm_logits"], labels["masked_lm_ids"])
    nsp_logits = ops.reshape(outputs["nsp_logits"], (*ops.shape(nsp_weights), 2))
    nsp_nll, nsp_hit = nll_and_hits(nsp_logits, labels["next_sentence_labels"])
    return {
        "mlm_nll": ops.sum(mlm_weights * mlm_nll, -1),
        "mlm_correct": ops.sum(mlm_weights * mlm_hit, -1),
        "mlm_weight": ops.sum(mlm_weights, -1),
        "nsp_nll": ops.sum(nsp_weights * nsp_nll, -1),
        "nsp_correct": ops.sum(nsp_weights * nsp_hit, -1),
        "nsp_weight": ops.sum(nsp_weights, -1),
    }


def weights(labels):
    """Which predictions count: float32 [B, P] of masked tokens and [B, S] of next sentences, 1.0 or 0.0."""
    mlm_weights = ops.cast(labels["masked_lm_weights"], "float32")
    if "next_sentence_weights" in labels:
        return mlm_weights, ops.cast(labels["next_sentence_weights"], "float32")
    return mlm_weights, ops.ones_like(labels["next_sentence_labels"], "float32")


def nll_and_hits(logits, ids):
    """logits [..., V], ids int [...] -> negative log-likelihood and 1.0 where the arg max is right, [...]."""
    logits = ops.cast(logits, "float32")
    ids = ops.cast(ids, "int32")
    picked = ops.squeeze(ops.take_along_axis(logits, ids[..., None], axis=-1), -1)
    hits = ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), ids), "float32")
    return ops.logsumexp(logits, axis=-1) - picked, hits
