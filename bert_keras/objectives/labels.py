"""The objective of tasks with one label per example (run_classifier.py) or per token (paper section 5.3).

With `sigmoid_nll_and_hits` an example has any number of labels.

Shapes: B batch, N classes.
"""

from collections.abc import Callable, Mapping
from typing import Any

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective


def label_objective(name: str, labels: str = "labels", nll_and_hits: Callable[..., Any] = nll_and_hits) -> Objective:
    """Mean cross-entropy of logits float [B, ..., N] and `labels` int [B, ...], in nats.

    Labels below 0 are left out: padding, special tokens, and all tokens of a word but the first. All other labels of
    a global batch count equally, times the `weights` float [B] of their examples. A batch without labels has loss 0.

    Args:
        labels: key of the labels in a batch.
        nll_and_hits: from logits and labels to their negative log-likelihoods and whether they are hit, float [B, ...].
            With `sigmoid_nll_and_hits` the labels are [B, N].
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

    def loss(sums, totals):
        return ops.divide_no_nan(sums["nll"], totals[0])

    return Objective(name, ("nll", "correct", "weight"), example_sums, totals, loss, _metrics)


def sigmoid_nll_and_hits(logits, labels):
    """Logits and labels, 1 or 0, [B, N] -> the nll of each, and 1.0 where its probability is on its side of 0.5."""
    logits, is_label = ops.cast(logits, "float32"), labels > 0
    hits = ops.equal(logits >= 0, is_label)
    return ops.softplus(ops.where(is_label, -logits, logits)), ops.cast(hits, "float32")


def _metrics(sums: Mapping[str, float]) -> dict[str, float]:
    weight = max(sums["weight"], 1e-5)
    return {"loss": sums["nll"] / weight, "accuracy": sums["correct"] / weight}
