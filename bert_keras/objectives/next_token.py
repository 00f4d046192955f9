"""Loss of language models: the next token, or the previous one, of every token.

Shapes: B batch, T tokens, V vocabulary. Of "[CLS] my dog [SEP]" and padding the targets are

    input_ids     [CLS] my  dog   [SEP] [PAD]
    next           my   dog [SEP]   -     -       (- = weight 0)
    previous       -   [CLS] my   dog     -

In a packed row the first token of a sequence is not the next one of the last token before.
"""

from __future__ import annotations

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits

# What `example_sums` and `bidirectional_sums` return an example.
SUMS = ("lm_nll", "lm_correct", "lm_weight")
BIDIRECTIONAL_SUMS = tuple(f"{direction}_{name}" for direction in ("forward", "backward") for name in SUMS)


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
        for direction in ("forward", "backward")
        for name, value in _sums(
            outputs[f"{direction}_lm_logits"], *next_tokens(labels, backward=direction == "backward")
        ).items()
    }


def loss(sums):
    """The loss, nats a token, of `example_sums` summed over a batch."""
    return sums["lm_nll"] / ops.maximum(sums["lm_weight"], 1.0)


def bidirectional_loss(sums):
    """The mean of the losses of both directions, of `bidirectional_sums` summed over a batch."""
    forward, backward = ({name: sums[f"{way}_{name}"] for name in SUMS} for way in ("forward", "backward"))
    return (loss(forward) + loss(backward)) / 2.0


def _sums(logits, ids, weights):
    nll, hit = nll_and_hits(logits, ids)
    return {
        "lm_nll": ops.sum(weights * nll, -1),
        "lm_correct": ops.sum(weights * hit, -1),
        "lm_weight": ops.sum(weights, -1),
    }
