"""The objective of tasks with one label per example (run_classifier.py) or per token (paper section 5.3).

Shapes: B batch, N classes.
"""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective


def label_objective(name: str, labels: str = "labels") -> Objective:
    """Mean cross-entropy of logits float [B, ..., N] and `labels` int [B, ...], in nats.

    Labels below 0 are left out: padding, special tokens, and all tokens of a word but the first. All other labels of
    a global batch count equally, times the `weights` float [B] of their examples. A batch without labels has loss 0.

    Args:
        labels: key of the labels in a batch.
    """

    def weights(batch):
        """float32 [B, labels of an example]."""
        known = ops.reshape(batch[labels] >= 0, (ops.shape(batch[labels])[0], -1))
        return ops.cast(known, "float32") * ops.cast(batch["weights"], "float32")[:, None]

    def example_sums(logits, batch):
        weight = weights(batch)
        values = nll_and_hits(logits, ops.maximum(batch[labels], 0))
        nll, correct = (ops.sum(ops.reshape(value, ops.shape(weight)) * weight, -1) for value in values)
        return {"nll": nll, "correct": correct, "weight": ops.sum(weight, -1)}

    def totals(batch):
        return (ops.sum(weights(batch)),)

    return Objective(name, ("nll", "correct", "weight"), example_sums, totals, _loss, _metrics)


def _loss(sums, totals):
    return ops.divide_no_nan(sums["nll"], totals[0])


def _metrics(sums: Mapping[str, float]) -> dict[str, float]:
    weight = max(sums["weight"], 1e-5)
    return {"loss": sums["nll"] / weight, "accuracy": sums["correct"] / weight}
