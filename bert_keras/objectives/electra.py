"""ELECTRA's objective: a generator's masked-LM loss and replaced token detection (arXiv 2003.10555, section 2).

Shapes: B batch, T tokens, P predictions, V vocabulary. "the [MASK] sat on [MASK]", of "the cat sat on mats", where the
generator draws "dog" and "mats":

    discriminator reads      the dog sat on mats
    replaced                  0   1   0  0   0      (a correct guess is an original)
"""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bert_keras.models.electra import put
from bert_keras.objectives import mlm
from bert_keras.objectives.mlm_nsp import means_of, sums_of
from bert_keras.objectives.objective import Objective

# Keys of `example_sums`.
SUMS = (*mlm.SUMS, "disc_nll", "disc_correct", "disc_weight")
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
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood in nats.
    """
    weights = ops.cast(labels["input_mask"], "float32")
    replaced = replaced_tokens(outputs["sampled_ids"], labels)
    logits = ops.cast(outputs["discriminator_logits"], "float32")
    nll = ops.softplus(ops.where(replaced, -logits, logits))
    hit = ops.cast(ops.equal(logits > 0, replaced), "float32")
    return {**mlm.example_sums(outputs, labels), **sums_of("disc", weights, nll, hit)}


def loss(sums, totals):
    """Mean masked-LM loss + 50 times the discriminator's mean loss, of `SUMS` of a batch or a part of it."""
    mlm_weight, disc_weight = totals
    return sums["mlm_nll"] / (mlm_weight + 1e-6) + DISCRIMINATOR_WEIGHT * sums["disc_nll"] / (disc_weight + 1e-6)


def totals(labels):
    """The denominators of the losses: number of masked tokens, number of tokens."""
    return (*mlm.totals(labels), ops.sum(ops.cast(labels["input_mask"], "float32")))


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Losses (nats) and accuracies from summed `SUMS`; the loss is the masked LM's + 50 times the discriminator's."""
    masked, found = mlm.metrics_of(sums), means_of("disc", sums, 1e-6)
    return {**masked, "loss": masked["mlm_loss"] + DISCRIMINATOR_WEIGHT * found["disc_loss"], **found}


def replaced_tokens(sampled_ids, labels):
    """Bool [B, T]: `sampled_ids` int [B, T] differ from the text's tokens; `labels` as in `example_sums`."""
    return ops.not_equal(ops.cast(sampled_ids, "int32"), put(labels, labels["masked_lm_ids"]))


OBJECTIVE = Objective(
    name="electra", sums=SUMS, example_sums=example_sums, totals=totals, loss=loss, metrics=metrics_of
)
