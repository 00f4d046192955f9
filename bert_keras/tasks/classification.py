"""Classification: one label for a sentence or a pair (run_classifier.py; paper section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_keras.errors import InputError
from bert_keras.objectives.labels import label_objective
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

objective = label_objective("classification")


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.task_types.TaskType`; `labels` int32 [N]."""
    arrays = text_sequences(rows, task, settings, tokenizer)
    if has_golds(rows):
        ids = {label: number for number, label in enumerate(task.labels)}
        for row in rows:
            if row.gold not in ids:
                raise InputError(
                    f"row {row.row_id} of {task.name} has the label {row.gold!r}; it must be one of "
                    f"{', '.join(task.labels)}"
                )
        arrays["labels"] = np.array([ids[row.gold] for row in rows], np.int32)
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)))


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[str]:
    """The labels with the largest logits [N, labels]; the first of equal ones."""
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
