"""Masked-LM and next-sentence loss (paper section 3.1).

One function gives sums and weights an example; training and the evaluation gate both reduce them, so they can
never disagree on what a loss or an accuracy is. Shapes: B batch, P predictions, V vocabulary, S sequences that a packed
row has room for (1 if rows are not packed).
"""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bert_keras.objectives.objective import Objective

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


def totals(labels):
    """What the losses divide by: how many tokens, and how many next sentences, are predicted."""
    return tuple(ops.sum(value) for value in weights(labels))


def loss(sums, totals):
    """Mean masked-LM plus mean next-sentence loss; the original's 1e-5 keeps a batch of no predictions finite."""
    mlm_weight, nsp_weight = totals
    return sums["mlm_nll"] / (mlm_weight + 1e-5) + sums["nsp_nll"] / (nsp_weight + 1e-5)


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Losses (nats) and accuracies of summed `SUMS`; the loss is mean masked-LM plus mean next-sentence loss."""
    mlm_weight, nsp_weight = max(sums["mlm_weight"], 1e-5), max(sums["nsp_weight"], 1e-5)
    mlm_loss, nsp_loss = sums["mlm_nll"] / mlm_weight, sums["nsp_nll"] / nsp_weight
    return {
        "loss": mlm_loss + nsp_loss,
        "mlm_loss": mlm_loss,
        "mlm_accuracy": sums["mlm_correct"] / mlm_weight,
        "nsp_loss": nsp_loss,
        "nsp_accuracy": sums["nsp_correct"] / nsp_weight,
    }


def nll_and_hits(logits, ids):
    """logits [..., V], ids int [...] -> negative log-likelihood and 1.0 where the arg max is right, [...].

    The first of equal logits is the arg max. The gradient is that of the likelihood.
    """
    logits = ops.cast(logits, "float32")
    ids = ops.cast(ids, "int32")
    shape = ops.shape(logits)
    logits = ops.reshape(logits, (-1, shape[-1]))
    flat_ids = ops.reshape(ids, (-1,))
    # Found in small integers: Keras' own arg max of floats takes five passes over them (it tells 0.0 from -0.0).
    is_largest = ops.greater_equal(logits, ops.max(logits, axis=-1, keepdims=True))
    hits = ops.equal(ops.argmax(ops.cast(is_largest, "int8"), axis=-1), flat_ids)
    return ops.reshape(_nll(logits, flat_ids), ops.shape(ids)), ops.reshape(ops.cast(hits, "float32"), ops.shape(ids))


def _nll(logits, ids):
    """logits float32 [N, V], ids int32 [N] -> [N], with a gradient of two passes over the logits.

    Left to automatic differentiation, TensorFlow scatters the picked logits' part into [N, V] zeros, then adds those;
    its fused operation is slower still on a CPU.
    """

    @ops.custom_gradient
    def nll(logits):
        largest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - largest)
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        picked = ops.take_along_axis(logits, ids[:, None], axis=-1)
        value = ops.log(total) + largest - picked

        def gradient(*args, upstream=None):
            upstream = (args[0] if upstream is None else upstream)[:, None]
            of_picked = ops.expm1(-value) * upstream  # p - 1
            places = ops.stack([ops.arange(ops.shape(ids)[0], dtype="int32"), ids], axis=-1)
            return ops.scatter_update(exponentials * (upstream / total), places, of_picked[:, 0])

        return value[:, 0], gradient

    return nll(logits)


OBJECTIVE = Objective(
    name="mlm_nsp", sums=SUMS, example_sums=example_sums, totals=totals, loss=loss, metrics=metrics_of
)
