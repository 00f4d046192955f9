"""Masked-LM and next-sentence loss (paper section 3.1), or sentence-order loss (ALBERT, arXiv 1909.11942, section 3.1).

Both read the pair by the same head; they differ in the examples, and in the names of the sums: `nsp` or `sop`.

One function returns sums and weights per example; training and the evaluation gate both reduce them, so their losses
and accuracies always agree. Shapes: B batch, P predictions, V vocabulary, S sequences that fit in a packed row (1
without packing).
"""

import functools

from keras import ops

from bert_keras.objectives.objective import Mean, Objective, objective_of_means

# The objectives' names, and the names of their pairs' sums.
PAIR_KEYS = {"mlm_nsp": "nsp", "mlm_sop": "sop"}


def example_sums(outputs, labels, key="nsp"):
    """Sums over the predictions of each example.

    Args:
        outputs: dict with `mlm_logits` float [B, P, V] and `nsp_logits` float [B, 2] or [B, S, 2].
        labels: dict with `masked_lm_ids` int [B, P], `masked_lm_weights` float [B, P] (0 = padding),
            `next_sentence_labels` int [B, S] (1 = random or swapped) and, for packed rows, `next_sentence_weights`
            float [B, S].
        key: `nsp`, or `sop`.

    Returns:
        Dict of float32 [B], `sums_of` the masked LM (`mlm`) and of `key`, which the gate reads.
    """
    mlm_weights, nsp_weights = weights(labels)
    nsp_logits = ops.reshape(outputs["nsp_logits"], (*ops.shape(nsp_weights), 2))
    return {
        **sums_of("mlm", mlm_weights, *nll_and_hits(outputs["mlm_logits"], labels["masked_lm_ids"])),
        **sums_of(key, nsp_weights, *nll_and_hits(nsp_logits, labels["next_sentence_labels"])),
    }


def weights(labels):
    """Weights of the predictions, 1.0 or 0.0: float32 [B, P] for masked tokens and [B, S] for next sentences."""
    mlm_weights = ops.cast(labels["masked_lm_weights"], "float32")
    if "next_sentence_weights" in labels:
        return mlm_weights, ops.cast(labels["next_sentence_weights"], "float32")
    return mlm_weights, ops.ones_like(labels["next_sentence_labels"], "float32")


def totals(labels):
    """The denominators of the losses: number of predicted tokens, number of predicted next sentences."""
    return tuple(ops.sum(value) for value in weights(labels))


def sums_of(key: str, weights, nll, hits):
    """The sums KEY_nll, in nats, KEY_correct and KEY_weight of each example; arguments are float32 [B, predictions]."""
    return {
        f"{key}_nll": ops.sum(weights * nll, -1),
        f"{key}_correct": ops.sum(weights * hits, -1),
        f"{key}_weight": ops.sum(weights, -1),
    }


def nll_and_hits(logits, ids):
    """Logits [..., V], ids int [...] -> negative log-likelihood, and 1.0 where the arg max equals the id, [...].

    The first of equal logits is the arg max. The gradient is that of the likelihood.
    """
    logits = ops.cast(logits, "float32")
    ids = ops.cast(ids, "int32")
    shape = ops.shape(logits)
    logits = ops.reshape(logits, (-1, shape[-1]))
    flat_ids = ops.reshape(ids, (-1,))
    # Arg max of int8: Keras' own arg max of floats takes five passes (it distinguishes 0.0 from -0.0).
    is_largest = ops.greater_equal(logits, ops.max(logits, axis=-1, keepdims=True))
    hits = ops.equal(ops.argmax(ops.cast(is_largest, "int8"), axis=-1), flat_ids)
    return ops.reshape(_nll(logits, flat_ids), ops.shape(ids)), ops.reshape(ops.cast(hits, "float32"), ops.shape(ids))


def _nll(logits, ids):
    """Logits float32 [N, V], ids int32 [N] -> [N], with a gradient of two passes over the logits.

    Automatic differentiation in TensorFlow scatters the gradient of the picked logits into [N, V] zeros and adds
    them; its fused operation is even slower on a CPU.
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
            picked_gradient = ops.expm1(-value) * upstream  # p - 1
            places = ops.stack([ops.arange(ops.shape(ids)[0], dtype="int32"), ids], axis=-1)
            return ops.scatter_update(exponentials * (upstream / total), places, picked_gradient[:, 0])

        return value[:, 0], gradient

    return nll(logits)


def _objective(name: str) -> Objective:
    key = PAIR_KEYS[name]
    means = [Mean(part, added=1e-5) for part in ("mlm", key)]  # as the original
    return objective_of_means(name, means, functools.partial(example_sums, key=key), totals)


OBJECTIVE, SENTENCE_ORDER = map(_objective, PAIR_KEYS)
