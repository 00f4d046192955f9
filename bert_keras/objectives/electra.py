"""ELECTRA's objective: a generator's masked-LM loss and replaced token detection (arXiv 2003.10555, section 2).

Shapes: B batch, T tokens, P predictions, V vocabulary. "the [MASK] sat on [MASK]", of "the cat sat on mats", where the
generator draws "dog" and "mats":

    discriminator reads      the dog sat on mats
    replaced                  0   1   0  0   0      (a correct guess is an original)
"""

from keras import ops

from bert_keras.models.electra import put
from bert_keras.objectives import mlm
from bert_keras.objectives.mlm_nsp import sums_of
from bert_keras.objectives.objective import Mean, objective_of_means

# The discriminator's loss is far below the generator's (google-research/electra, configure_pretraining.py).
DISCRIMINATOR_WEIGHT = 50.0


def example_sums(outputs, labels):
    """Sums over the predictions (`mlm_`) and over all tokens but padding (`disc_`) of each example.

    Args:
        outputs: dict with `mlm_logits` float [B, P, V], `sampled_ids` int [B, T], the discriminator's input, and
            `discriminator_logits` float [B, T].
        labels: dict with `input_ids` and `input_mask` int [B, T], `masked_lm_positions` and `masked_lm_ids` int [B, P],
            `masked_lm_weights` float [B, P] (0 = padding).

    Returns:
        Dict of float32 [B] (`sums_of`).
    """
    weights = ops.cast(labels["input_mask"], "float32")
    replaced = replaced_tokens(outputs["sampled_ids"], labels)
    logits = ops.cast(outputs["discriminator_logits"], "float32")
    nll = ops.softplus(ops.where(replaced, -logits, logits))
    hit = ops.cast(ops.equal(logits > 0, replaced), "float32")
    return {**mlm.example_sums(outputs, labels), **sums_of("disc", weights, nll, hit)}


def totals(labels):
    """The denominators of the losses: number of masked tokens, number of tokens."""
    return (*mlm.totals(labels), ops.sum(ops.cast(labels["input_mask"], "float32")))


def replaced_tokens(sampled_ids, labels):
    """Bool [B, T]: `sampled_ids` int [B, T] differ from the text's tokens; `labels` as in `example_sums`."""
    return ops.not_equal(ops.cast(sampled_ids, "int32"), put(labels, labels["masked_lm_ids"]))


_DISCRIMINATOR = Mean("disc", added=1e-6, least_weight=1e-6, share=DISCRIMINATOR_WEIGHT)
OBJECTIVE = objective_of_means("electra", [Mean("mlm", added=1e-6), _DISCRIMINATOR], example_sums, totals)
