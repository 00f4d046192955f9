"""Masked-LM and span boundary loss of SpanBERT (arXiv 1907.10529, section 3).

Shapes: B batch, T tokens, P predictions, V vocabulary. A span is a run of adjacent masked tokens: touching spans are
merged, as in the original (pretraining/fairseq/data/masking.py). The span at positions 3 to 5 of

    [CLS] my dog [MASK] [MASK] [MASK] play . [SEP]

is predicted token by token from the outputs at 2 ("dog") and 6 ("play") and the place in the span, 0 to 2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from keras import ops

from bert_keras.models.spanbert import span_boundaries
from bert_keras.objectives import mlm
from bert_keras.objectives.mlm_nsp import means_of, nll_and_hits, sums_of
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.settings import PretrainingSettings

MAX_PAIR_TARGETS = PretrainingSettings.max_pair_targets
# Keys of `example_sums`.
SUMS = ("mlm_nll", "mlm_correct", "mlm_weight", "sbo_nll", "sbo_correct", "sbo_weight")


def example_sums(outputs, labels):
    """Sums over the predictions of each example.

    Args:
        outputs: dict with `mlm_logits` and `sbo_logits` float [B, P, V], and `sbo_weights` float [B, P] (0 = not
            predicted).
        labels: dict with `masked_lm_ids` int [B, P] and `masked_lm_weights` float [B, P] (0 = padding).

    Returns:
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood in nats.
    """
    sums = {}
    for name, weights in (("mlm", labels["masked_lm_weights"]), ("sbo", outputs["sbo_weights"])):
        weights = ops.cast(weights, "float32")
        sums |= sums_of(name, weights, *nll_and_hits(outputs[f"{name}_logits"], labels["masked_lm_ids"]))
    return sums


def loss(sums, totals):
    """The loss, nats per token, of `example_sums` of a batch or a part of it: MLM / tokens + SBO / (targets + 1)."""
    mlm_weight, sbo_weight = totals
    return sums["mlm_nll"] / ops.maximum(mlm_weight, 1.0) + sums["sbo_nll"] / (sbo_weight + 1.0)


def totals(labels, max_pair_targets: int):
    """The denominators of the losses: number of masked tokens, number of those predicted from span boundaries."""
    return (*mlm.totals(labels), ops.sum(span_boundaries(labels, max_pair_targets).weights))


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Losses (nats) and accuracies from summed `SUMS`; the loss is the sum of both means."""
    masked, found = mlm.metrics_of(sums), means_of("sbo", sums)
    return {**masked, "loss": masked["mlm_loss"] + found["sbo_loss"], **found}


def objective(max_pair_targets: int) -> Objective:
    """The objective of a model with this `max_pair_targets`."""
    return Objective(
        name="span_boundary",
        sums=SUMS,
        example_sums=example_sums,
        totals=functools.partial(totals, max_pair_targets=max_pair_targets),
        loss=loss,
        metrics=metrics_of,
    )


OBJECTIVE = objective(MAX_PAIR_TARGETS)
