"""Multiple choice: one of C continuations, as for SWAG (paper section 4.4); each is [CLS] text [SEP] choice [SEP].

Shapes: N rows, C choices, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_keras.errors import InputError
from bert_keras.objectives.labels import label_objective
from bert_keras.tasks.classification import has_golds
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import TokenRuns, pair_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

objective = label_objective("multiple_choice")


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.task_types.TaskType`; the encoder's inputs are int32 [N, C, T], `labels` int32 [N].

    Raises:
        InputError: also for rows with different numbers of choices.
    """
    choices = len(rows[0].inputs["choices"]) if rows else 1
    for row in rows:
        if len(row.inputs["choices"]) != choices:
            raise InputError(
                f"row {row.row_id} of {task.name} has {len(row.inputs['choices'])} choices, row {rows[0].row_id} "
                f"{choices}; all must have the same number"
            )
    text = TokenRuns.of(tokenizer, [str(row.inputs["text"]) for row in rows])
    choice = TokenRuns.of(tokenizer, [choice for row in rows for choice in row.inputs["choices"]])
    text = text[np.repeat(np.arange(len(rows)), choices)]
    arrays = pair_sequences(text, choice, settings.max_seq_length, tokenizer)
    arrays = {name: array.reshape(len(rows), choices, array.shape[1]) for name, array in arrays.items()}
    if has_golds(rows):
        for row in rows:
            if isinstance(row.gold, bool) or row.gold not in range(choices):
                raise InputError(
                    f"row {row.row_id} of {task.name} has the gold {row.gold!r}; it must be the number of a choice, "
                    f"from 0 to {choices - 1}"
                )
        arrays["labels"] = np.array([row.gold for row in rows], np.int32)
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)))


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[int]:
    """The choices with the largest logits [N, C], from 0; the first of equal ones."""
    return [int(number) for number in np.argmax(outputs, axis=-1)]
