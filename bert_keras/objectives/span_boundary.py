"""Masked-LM and span boundary loss of SpanBERT (arXiv 1907.10529, section 3).

Shapes: B batch, T tokens, P predictions, V vocabulary. A span is a run of adjacent masked tokens: touching spans are
merged, as in the original (pretraining/fairseq/data/masking.py). The span at positions 3 to 5 of

    [CLS] my dog [MASK] [MASK] [MASK] play . [SEP]

is predicted token by token from the outputs at 2 ("dog") and 6 ("play") and the place in the span, 0 to 2.
"""

import functools

from keras import ops

from bert_keras.models.spanbert import span_boundaries
from bert_keras.objectives import mlm
from bert_keras.objectives.mlm_nsp import nll_and_hits, sums_of
from bert_keras.objectives.objective import Mean, Objective, objective_of_means
from bert_keras.objectives.settings import PretrainingSettings

MAX_PAIR_TARGETS = PretrainingSettings.max_pair_targets


def example_sums(outputs, labels):
    """Sums over the predictions of each example.

    Args:
        outputs: dict with `mlm_logits` and `sbo_logits` float [B, P, V], and `sbo_weights` float [B, P] (0 = not
            predicted).
        labels: dict with `masked_lm_ids` int [B, P] and `masked_lm_weights` float [B, P] (0 = padding).

    Returns:
        Dict of float32 [B] (`sums_of`).
    """
    sums = {}
    for name, weights in (("mlm", labels["masked_lm_weights"]), ("sbo", outputs["sbo_weights"])):
        weights = ops.cast(weights, "float32")
        sums |= sums_of(name, weights, *nll_and_hits(outputs[f"{name}_logits"], labels["masked_lm_ids"]))
    return sums


def totals(labels, max_pair_targets: int):
    """The denominators of the losses: number of masked tokens, number of those predicted from span boundaries."""
    return (*mlm.totals(labels), ops.sum(span_boundaries(labels, max_pair_targets).weights))


def objective(max_pair_targets: int) -> Objective:
    """The objective of a model with this `max_pair_targets`: both losses in nats per token."""
    means = [Mean("mlm", at_least=1.0), Mean("sbo", added=1.0)]
    of_model = functools.partial(totals, max_pair_targets=max_pair_targets)
    return objective_of_means("span_boundary", means, example_sums, of_model)


OBJECTIVE = objective(MAX_PAIR_TARGETS)
