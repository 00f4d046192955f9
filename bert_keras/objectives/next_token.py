"""Loss of language models: the next token, or the previous one, of every token.

Shapes: B batch, T tokens, V vocabulary. Of "[CLS] my dog [SEP]" and padding the targets are

    input_ids     [CLS] my  dog   [SEP] [PAD]
    next           my   dog [SEP]   -     -       (- = weight 0)
    previous       -   [CLS] my   dog     -

In a packed row the first token of a sequence is not the next one of the last token before.
"""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective

# What `example_sums` and `bidirectional_sums` return an example.
SUMS = ("lm_nll", "lm_correct", "lm_weight")
DIRECTIONS = ("forward", "backward")
BIDIRECTIONAL_SUMS = tuple(f"{direction}_{name}" for direction in DIRECTIONS for name in SUMS)


def next_tokens(inputs, backward: bool = False):
    """What each token predicts.

    Args:
        inputs: dict with `input_ids` and `input_mask` int [B, T] and, of packed rows, `sequence_ids` int [B, T].
        backward: the previous token, not the next.

    Returns:
        ids int [B, T] and weights float32 [B, T]: 1.0 where the token and its neighbour are of one sequence.
    """

    def neighbour(x):  # 0 beyond the row
        padded = ops.pad(x, [[0, 0], [1, 1]])
        return padded[:, :-2] if backward else padded[:, 2:]

    ids = ops.cast(inputs["input_ids"], "int32")
    sequence = ops.cast(inputs.get("sequence_ids", inputs["input_mask"]), "int32")
    of_one = ops.logical_and(ops.equal(sequence, neighbour(sequence)), sequence > 0)
    return neighbour(ids), ops.cast(of_one, "float32")


def example_sums(outputs, labels):
    """Sums over the tokens of each example.

    Args:
        outputs: dict with `lm_logits` float [B, T, V].
        labels: what `next_tokens` takes.

    Returns:
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood in nats.
    """
    return _sums(outputs["lm_logits"], *next_tokens(labels))


def bidirectional_sums(outputs, labels):
    """The same of `forward_lm_logits` and, of the previous tokens, of `backward_lm_logits`: `BIDIRECTIONAL_SUMS`."""
    return {
        f"{direction}_{name}": value
        for direction in DIRECTIONS
        for name, value in _sums(
            outputs[f"{direction}_lm_logits"], *next_tokens(labels, backward=direction == "backward")
        ).items()
    }


def loss(sums):
    """The loss, nats a token, of `example_sums` summed over a batch."""
    return part_of_loss(sums, (sums["lm_weight"],))


def part_of_loss(sums, totals):
    """The same of a part of a global batch of these `totals`."""
    return sums["lm_nll"] / ops.maximum(totals[0], 1.0)


def totals(labels):
    """What the loss divides by: how many tokens have a next one."""
    return (ops.sum(next_tokens(labels)[1]),)


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Loss (nats a token) and accuracy of `example_sums` summed over a batch."""
    weight = max(sums["lm_weight"], 1.0)
    loss = sums["lm_nll"] / weight
    return {"loss": loss, "lm_loss": loss, "lm_accuracy": sums["lm_correct"] / weight}


def bidirectional_loss(sums):
    """The mean of the losses of both directions, of `bidirectional_sums` summed over a batch."""
    return bidirectional_part_of_loss(sums, (sums["forward_lm_weight"], sums["backward_lm_weight"]))


def bidirectional_part_of_loss(sums, totals):
    """The same of a part of a global batch of these `totals`."""
    parts = [part_of_loss(_of(way, sums), (total,)) for way, total in zip(DIRECTIONS, totals, strict=True)]
    return sum(parts) / 2.0


def bidirectional_totals(labels):
    """What the losses divide by: how many tokens have a next one, and a previous one."""
    return tuple(ops.sum(next_tokens(labels, backward=way == "backward")[1]) for way in DIRECTIONS)


def bidirectional_metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Losses (nats a token) and accuracies of `bidirectional_sums` summed over a batch; the loss is their mean."""
    metrics = {way: metrics_of(_of(way, sums)) for way in DIRECTIONS}
    named = {f"{way}_{name}": value for way in DIRECTIONS for name, value in metrics[way].items()}
    return {"loss": sum(metrics[way]["loss"] for way in DIRECTIONS) / 2.0, **named}


def _of(direction: str, sums):
    return {name: sums[f"{direction}_{name}"] for name in SUMS}


def _sums(logits, ids, weights):
    nll, hit = nll_and_hits(logits, ids)
    return {
        "lm_nll": ops.sum(weights * nll, -1),
        "lm_correct": ops.sum(weights * hit, -1),
        "lm_weight": ops.sum(weights, -1),
    }


OBJECTIVE = Objective(
    name="left_to_right", sums=SUMS, example_sums=example_sums, totals=totals, loss=part_of_loss, metrics=metrics_of
)
BIDIRECTIONAL_OBJECTIVE = Objective(
    name="bidirectional",
    sums=BIDIRECTIONAL_SUMS,
    example_sums=bidirectional_sums,
    totals=bidirectional_totals,
    loss=bidirectional_part_of_loss,
    metrics=bidirectional_metrics_of,
)
