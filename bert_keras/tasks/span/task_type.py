"""Extractive question answering, as in SQuAD: answers are spans of a context (run_squad.py; paper sections 4.2, 4.3).

Shapes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras import ops

from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.answers import span_answers
from bert_keras.tasks.span.features import span_features
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

SUMS = ("start_nll", "end_nll", "start_correct", "end_correct", "weight")


def example_sums(outputs, batch):
    """Sums of each window.

    Args:
        outputs: dict with `start_logits`, `end_logits`, float [B, T].
        batch: with `start_positions`, `end_positions` int [B], `weights` float [B].

    Returns:
        Dict of float32 [B] for each name in `SUMS`; `nll` is the negative log-likelihood over all T positions, in nats.
    """
    weights = ops.cast(batch["weights"], "float32")
    sums = {"weight": weights}
    for name in ("start", "end"):
        nll, hit = nll_and_hits(outputs[f"{name}_logits"], batch[f"{name}_positions"])
        sums[f"{name}_nll"], sums[f"{name}_correct"] = weights * nll, weights * hit
    return sums


def _totals(batch):
    return (ops.sum(ops.cast(batch["weights"], "float32")),)


def _loss(sums, totals):
    return ops.divide_no_nan(sums["start_nll"] + sums["end_nll"], 2.0 * totals[0])


def _metrics(sums: Mapping[str, float]) -> dict[str, float]:
    weight = max(sums["weight"], 1e-30)
    return {
        "loss": (sums["start_nll"] + sums["end_nll"]) / (2.0 * weight),
        "start_accuracy": sums["start_correct"] / weight,
        "end_accuracy": sums["end_correct"] / weight,
    }


objective = Objective("span", SUMS, example_sums, _totals, _loss, _metrics)


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """The windows of the rows; see `span_features`."""
    return span_features(rows, settings, tokenizer)


def answers(
    outputs: Mapping[str, Any], features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[str]:
    """The answer to each row, "" for none; see `span_answers`."""
    return [answer.text for answer in span_answers(outputs, features, rows, task, settings)]
