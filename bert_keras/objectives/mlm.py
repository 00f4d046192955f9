"""Masked-LM loss only, as in RoBERTa. Shapes: B batch, P predictions, V vocabulary."""

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits, sums_of
from bert_keras.objectives.objective import Mean, objective_of_means


def example_sums(outputs, labels):
    """Sums over the predictions of each example.

    Args:
        outputs: dict with `mlm_logits` float [B, P, V].
        labels: dict with `masked_lm_ids` int [B, P] and `masked_lm_weights` float [B, P] (0 = padding).

    Returns:
        Dict of float32 [B] (`sums_of`).
    """
    weights = ops.cast(labels["masked_lm_weights"], "float32")
    return sums_of("mlm", weights, *nll_and_hits(outputs["mlm_logits"], labels["masked_lm_ids"]))


def totals(labels):
    """The denominator of the loss: number of predicted tokens."""
    return (ops.sum(ops.cast(labels["masked_lm_weights"], "float32")),)


OBJECTIVE = objective_of_means("mlm", [Mean("mlm", added=1e-5)], example_sums, totals)
metrics_of = OBJECTIVE.metrics
