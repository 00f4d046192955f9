"""Loss of language models: predict the next, or the previous, token of every token.

Shapes: B batch, T tokens, V vocabulary. The targets for "[CLS] my dog [SEP]" and padding:

    input_ids     [CLS] my  dog   [SEP] [PAD]
    next           my   dog [SEP]   -     -       (- = weight 0)
    previous       -   [CLS] my   dog     -

In a packed row no token predicts a token of another sequence.
"""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bert_keras.objectives.mlm_nsp import means_of, nll_and_hits, sums_of
from bert_keras.objectives.objective import Objective

# Keys of `example_sums` and `bidirectional_sums`.
SUMS = ("lm_nll", "lm_correct", "lm_weight")
DIRECTIONS = ("forward", "backward")
BIDIRECTIONAL_SUMS = tuple(f"{direction}_{name}" for direction in DIRECTIONS for name in SUMS)


def next_tokens(inputs, backward: bool = False):
    """The target of each token.

    Args:
        inputs: dict with `input_ids` and `input_mask` int [B, T] and, for packed rows, `sequence_ids` int [B, T].
        backward: predict the previous token instead of the next.

    Returns:
        ids int [B, T] and weights float32 [B, T]: 1.0 if the token and its neighbour belong to one sequence.
    """

    def neighbour(x):  # 0 beyond the row
        padded = ops.pad(x, [[0, 0], [1, 1]])
        return padded[:, :-2] if backward else padded[:, 2:]

    ids = ops.cast(inputs["input_ids"], "int32")
    sequence = ops.cast(inputs.get("sequence_ids", inputs["input_mask"]), "int32")
    same = ops.logical_and(ops.equal(sequence, neighbour(sequence)), sequence > 0)
    return neighbour(ids), ops.cast(same, "float32")


def example_sums(outputs, labels):
    """Sums over the tokens of each example.

    Args:
        outputs: dict with `lm_logits` float [B, T, V].
        labels: the inputs of `next_tokens`.

    Returns:
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood in nats.
    """
    return _sums("lm", outputs, labels)


def bidirectional_sums(outputs, labels):
    """`example_sums` for `forward_lm_logits` and, with previous tokens, `backward_lm_logits`: `BIDIRECTIONAL_SUMS`."""
    return {**_sums("forward_lm", outputs, labels), **_sums("backward_lm", outputs, labels, backward=True)}


def _sums(key: str, outputs, labels, backward: bool = False):
    ids, weights = next_tokens(labels, backward)
    return sums_of(key, weights, *nll_and_hits(outputs[f"{key}_logits"], ids))


def loss(sums, totals):
    """The loss, nats per token, of `example_sums` of a batch or a part of it."""
    return sums["lm_nll"] / ops.maximum(totals[0], 1.0)


def totals(labels):
    """The denominator of the loss: number of tokens with a next token."""
    return (ops.sum(next_tokens(labels)[1]),)


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Loss (nats per token) and accuracy from `example_sums` summed over a batch."""
    metrics = means_of("lm", sums, 1.0)
    return {"loss": metrics["lm_loss"], **metrics}


def bidirectional_loss(sums, totals):
    """The mean of the losses of both directions, of `bidirectional_sums` of a batch or a part of it."""
    pairs = zip(DIRECTIONS, totals, strict=True)
    return sum(sums[f"{way}_lm_nll"] / ops.maximum(total, 1.0) for way, total in pairs) / 2.0


def bidirectional_totals(labels):
    """The denominators of the losses: number of tokens with a next, and with a previous, token."""
    return tuple(ops.sum(next_tokens(labels, backward=way == "backward")[1]) for way in DIRECTIONS)


def bidirectional_metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Losses (nats per token) and accuracies from `bidirectional_sums` summed over a batch; the loss is their mean."""
    metrics = means_of("forward_lm", sums, 1.0) | means_of("backward_lm", sums, 1.0)
    return {"loss": (metrics["forward_lm_loss"] + metrics["backward_lm_loss"]) / 2.0, **metrics}


OBJECTIVE = Objective(
    name="left_to_right", sums=SUMS, example_sums=example_sums, totals=totals, loss=loss, metrics=metrics_of
)
BIDIRECTIONAL_OBJECTIVE = Objective(
    name="bidirectional",
    sums=BIDIRECTIONAL_SUMS,
    example_sums=bidirectional_sums,
    totals=bidirectional_totals,
    loss=bidirectional_loss,
    metrics=bidirectional_metrics_of,
)
