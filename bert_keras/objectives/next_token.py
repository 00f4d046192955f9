"""Loss of language models: predict the next, or the previous, token of every token.

Shapes: B batch, T tokens, V vocabulary. The targets for "[CLS] my dog [SEP]" and padding:

    input_ids     [CLS] my  dog   [SEP] [PAD]
    next           my   dog [SEP]   -     -       (- = weight 0)
    previous       -   [CLS] my   dog     -

In a packed row no token predicts a token of another sequence.
"""

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits, sums_of
from bert_keras.objectives.objective import Mean, objective_of_means

DIRECTIONS = ("forward", "backward")


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
        Dict of float32 [B] (`sums_of`).
    """
    return _sums("lm", outputs, labels)


def bidirectional_sums(outputs, labels):
    """`example_sums` for `forward_lm_logits` and, with previous tokens, `backward_lm_logits`."""
    return {**_sums("forward_lm", outputs, labels), **_sums("backward_lm", outputs, labels, backward=True)}


def _sums(key: str, outputs, labels, backward: bool = False):
    ids, weights = next_tokens(labels, backward)
    return sums_of(key, weights, *nll_and_hits(outputs[f"{key}_logits"], ids))


def totals(labels):
    """The denominator of the loss: number of tokens with a next token."""
    return (ops.sum(next_tokens(labels)[1]),)


def bidirectional_totals(labels):
    """The denominators of the losses: number of tokens with a next, and with a previous, token."""
    return tuple(ops.sum(next_tokens(labels, backward=way == "backward")[1]) for way in DIRECTIONS)


_NEXT = Mean("lm", at_least=1.0, least_weight=1.0)
OBJECTIVE = objective_of_means("left_to_right", [_NEXT], example_sums, totals)
BIDIRECTIONAL_OBJECTIVE = objective_of_means(
    "bidirectional",
    [_NEXT._replace(key=f"{way}_lm", share=0.5) for way in DIRECTIONS],
    bidirectional_sums,
    bidirectional_totals,
)
