"""ELECTRA's objective: a generator's masked-LM loss and replaced token detection (arXiv 2003.10555, section 2; D8).

Shapes: B batch, T tokens, P predictions, V vocabulary. "the [MASK] sat on [MASK]", of "the cat sat on mats", where the
generator draws "dog" and "mats":

    discriminator reads      the dog sat on mats
    replaced                  0   1   0  0   0      (a correct guess is an original)
"""

from __future__ import annotations

from collections.abc import Mapping

import keras
from keras import ops

from bert_keras.objectives import mlm
from bert_keras.objectives.objective import Objective

# What `example_sums` returns an example.
SUMS = (*mlm.SUMS, "disc_nll", "disc_correct", "disc_weight")
# The discriminator's loss is far below the generator's (D8).
DISCRIMINATOR_WEIGHT = 50.0


def example_sums(outputs, labels):
    """Sums over the predictions (`mlm_`) and over all tokens but padding (`disc_`) of each example.

    Args:
        outputs: dict with `mlm_logits` float [B, P, V], `sampled_ids` int [B, T], what the discriminator read, and
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
    return {
        **mlm.example_sums(outputs, labels),
        "disc_nll": ops.sum(weights * nll, -1),
        "disc_correct": ops.sum(weights * hit, -1),
        "disc_weight": ops.sum(weights, -1),
    }


def loss(sums):
    """Mean masked-LM loss + 50 times the mean loss of the discriminator, of `SUMS` summed over a global batch."""
    return part_of_loss(sums, (sums["mlm_weight"], sums["disc_weight"]))


def part_of_loss(sums, totals):
    """The same of a part of a global batch of these `totals`."""
    mlm_weight, disc_weight = totals
    return sums["mlm_nll"] / (mlm_weight + 1e-6) + DISCRIMINATOR_WEIGHT * sums["disc_nll"] / (disc_weight + 1e-6)


def totals(labels):
    """What the losses divide by: how many tokens are masked, and how many there are."""
    return (*mlm.totals(labels), ops.sum(ops.cast(labels["input_mask"], "float32")))


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Losses (nats) and accuracies of summed `SUMS`; the loss is the masked LM's + 50 times the discriminator's."""
    disc_weight = max(sums["disc_weight"], 1e-6)
    masked = mlm.metrics_of(sums)
    disc_loss = sums["disc_nll"] / disc_weight
    return {
        **masked,
        "loss": masked["mlm_loss"] + DISCRIMINATOR_WEIGHT * disc_loss,
        "disc_loss": disc_loss,
        "disc_accuracy": sums["disc_correct"] / disc_weight,
    }


def replaced_tokens(sampled_ids, labels):
    """Where `sampled_ids` int [B, T] are not the text's tokens: bool [B, T]; `labels` as above."""
    return ops.not_equal(ops.cast(sampled_ids, "int32"), put(labels, labels["masked_lm_ids"]))


def sample(logits, seed: keras.random.SeedGenerator):
    """Tokens drawn from the softmax of logits [..., V], by the Gumbel trick: int32 [...], which no gradient enters."""
    uniform = keras.random.uniform(ops.shape(logits), seed=seed, dtype="float32")
    gumbel = -ops.log(-ops.log(uniform + 1e-9) + 1e-9)
    noisy = ops.stop_gradient(ops.cast(logits, "float32")) + gumbel
    return ops.cast(ops.argmax(noisy, axis=-1), "int32")


def put(inputs, ids):
    """The input with `ids` int [B, P] at the masked positions: int32 [B, T].

    Of a position that is there more than once, the mean rounded down, as in the original (its positions are drawn with
    replacement; D8); padding, of weight 0, puts nothing.

    Args:
        inputs: dict with `input_ids` int [B, T], `masked_lm_positions` int [B, P] and `masked_lm_weights` float [B, P].
    """
    input_ids = ops.cast(inputs["input_ids"], "int32")
    index = ops.arange(ops.shape(input_ids)[1], dtype="int32")
    here = ops.equal(ops.cast(inputs["masked_lm_positions"], "int32")[:, :, None], index)  # [B, P, T]
    here = ops.cast(here & (inputs["masked_lm_weights"] > 0)[:, :, None], "int32")
    count = ops.sum(here, axis=1)
    total = ops.sum(here * ops.cast(ids, "int32")[:, :, None], axis=1)
    return ops.where(count > 0, total // ops.maximum(count, 1), input_ids)


OBJECTIVE = Objective(
    name="electra", sums=SUMS, example_sums=example_sums, totals=totals, loss=part_of_loss, metrics=metrics_of
)
