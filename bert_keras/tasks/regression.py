"""Regression: one number for a sentence or a pair, as for STS-B (paper section 4.1).

The original has no regression. As in `transformers`, the number is not scaled (ELECTRA's code divides by 5) and the
loss is the squared error; answers are the model's outputs, which may be out of the range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from keras import ops

from bert_keras.errors import InputError
from bert_keras.objectives.objective import Objective
from bert_keras.tasks.classification import has_golds, text_sequences
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer


def _example_sums(outputs, batch):
    weights = ops.cast(batch["weights"], "float32")
    errors = ops.square(ops.cast(outputs, "float32") - ops.cast(batch["labels"], "float32"))
    return {"squared_error": errors * weights, "weight": weights}


def _loss(sums, totals):
    return ops.divide_no_nan(sums["squared_error"], totals[0])


def _metrics(sums: Mapping[str, float]) -> dict[str, float]:
    return {"loss": sums["squared_error"] / max(sums["weight"], 1e-5)}


objective = Objective(
    "regression",
    ("squared_error", "weight"),
    _example_sums,
    lambda batch: (ops.sum(ops.cast(batch["weights"], "float32")),),
    _loss,
    _metrics,
)


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.task_types.TaskType`; `labels` float32 [N]."""
    arrays = text_sequences(rows, task, settings, tokenizer)
    if has_golds(rows):
        for row in rows:
            if isinstance(row.gold, bool) or not isinstance(row.gold, (int, float)) or not np.isfinite(row.gold):
                raise InputError(f"row {row.row_id} of {task.name} has the gold {row.gold!r}; it must be a number")
        arrays["labels"] = np.array([row.gold for row in rows], np.float32)
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)))


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[float]:
    """The outputs [N], unchanged."""
    return [float(value) for value in outputs]
