"""Regression: one number for a sentence or a pair, as for STS-B (paper section 4.1); and ranking by such a number.

The original has no regression. As in `transformers`, the number is not scaled (ELECTRA's code divides by 5) and the
loss is the squared error; answers are the model's outputs, which may be out of the range.

A ranking's number is the logit of the relevance of a passage (`text_pair`) for a query (`text`), as of monoBERT (R.
Nogueira, K. Cho 2019, arXiv 1901.04085, section 2): the loss is the binary cross-entropy, and labels above 0 are
relevant alike. With `TaskSettings.list_size` it is that of a softmax over the passages of a list, a relevant one and
others of its query, as in LCE (L. Gao et al. 2021, arXiv 2101.08751, section 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from keras import ops

from bert_keras.errors import InputError
from bert_keras.objectives.labels import label_objective, sigmoid_nll_and_hits
from bert_keras.objectives.objective import Objective
from bert_keras.tasks import multiple_choice
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

ranking_objective = label_objective("ranking", nll_and_hits=sigmoid_nll_and_hits)
list_objective = label_objective("ranking")


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.task_types.TaskType`; `labels` float32 [N].

    Of lists, L of C passages, the encoder's inputs are int32 [L, C, T], and `labels` int32 [L] are 0.
    """
    if settings.list_size and task.kind == "ranking" and has_golds(rows):
        return multiple_choice.features(_lists(rows, settings.list_size), task, settings, tokenizer)
    arrays = text_sequences(rows, task, settings, tokenizer)
    if has_golds(rows):
        labels = [row.gold[1] if task.kind == "ranking" else row.gold for row in rows]
        for row, label in zip(rows, labels, strict=True):
            if isinstance(label, bool) or not isinstance(label, (int, float)) or not np.isfinite(label):
                raise InputError(f"row {row.row_id} of {task.name} has the gold {row.gold!r}; it must be a number")
        arrays["labels"] = np.array(labels, np.float32)
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)))


def _lists(rows: Sequence[TaskRow], size: int) -> list[TaskRow]:
    """Each relevant passage as the first choice beside the first others of its query, repeated if they are too few."""
    others: dict[str, list[str]] = {}
    for row in rows:
        if not row.gold[1]:
            others.setdefault(row.gold[0], []).append(str(row.inputs["text_pair"]))
    lists = []
    for row in rows:
        if row.gold[1] and row.gold[0] in others:
            negatives = itertools.islice(itertools.cycle(others[row.gold[0]]), size - 1)
            choices = (str(row.inputs["text_pair"]), *negatives)
            lists.append(TaskRow(row.row_id, {"text": row.gold[0], "choices": choices}, 0))
    if not lists:
        raise InputError("no query has a relevant passage and another one, as task.list_size needs; set it to 0")
    return lists


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[float]:
    """The outputs [N], unchanged."""
    return [float(value) for value in outputs]
