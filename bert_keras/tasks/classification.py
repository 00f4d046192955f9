"""Classification: one label for a sentence or a pair (run_classifier.py; paper section 4.1).

The type `multi_label` has any number of labels, each with a probability of its own, the sigmoid of its logit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_keras.errors import InputError
from bert_keras.objectives.labels import label_objective, sigmoid_nll_and_hits
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

objective = label_objective("classification")
multi_label_objective = label_objective("multi_label", nll_and_hits=sigmoid_nll_and_hits)


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.task_types.TaskType`; `labels` int32 [N], of several [N, labels], 1 or 0."""
    arrays = text_sequences(rows, task, settings, tokenizer)
    if has_golds(rows):
        ids, several = {label: number for number, label in enumerate(task.labels)}, task.kind == "multi_label"
        arrays["labels"] = np.zeros((len(rows), len(ids)) if several else len(rows), np.int32)
        for number, row in enumerate(rows):
            for label in row.gold if several else [row.gold]:
                if label not in ids:
                    raise InputError(
                        f"row {row.row_id} of {task.name} has the label {label!r}; it must be one of "
                        f"{', '.join(task.labels)}"
                    )
                arrays["labels"][(number, ids[label]) if several else number] = 1 if several else ids[label]
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)))


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[str] | list[list[str]]:
    """The labels with the largest logits [N, labels], the first of equal ones; of several all of at least 0.5."""
    if task.kind == "multi_label":
        return [[task.labels[number] for number in np.flatnonzero(row >= 0)] for row in outputs]
    return [task.labels[number] for number in np.argmax(outputs, axis=-1)]


def text_sequences(
    rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """The encoder's inputs, int32 [N, T], for `text` and, for pairs, `text_pair`."""
    text = TokenRuns.of(tokenizer, [str(row.inputs["text"]) for row in rows])
    if not task.pair:
        return single_sequences(text, settings.max_seq_length, settings.truncation, tokenizer)
    pair = TokenRuns.of(tokenizer, [str(row.inputs["text_pair"]) for row in rows])
    return pair_sequences(text, pair, settings.max_seq_length, tokenizer)


def has_golds(rows: Sequence[TaskRow]) -> bool:
    """Whether all rows have golds.

    Raises:
        InputError: only some rows have one; names the first without.
    """
    missing = [row for row in rows if row.gold is None]
    if missing and len(missing) < len(rows):
        raise InputError(
            f"row {missing[0].row_id} has no gold, as {len(missing)} of the {len(rows)} rows of its split; "
            "give golds for all rows, or for none as in a test split"
        )
    return not missing
