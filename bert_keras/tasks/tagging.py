"""Tagging: one tag per word (paper section 5.3), predicted from the word's first token; its other tokens have no label.

A word without a first token in the sequence (normalized to nothing, or beyond T) has no label in training and the
answer "O", so the score counts a missed entity; ELECTRA's code drops such words.
Shapes: N rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_keras.errors import InputError
from bert_keras.objectives.labels import label_objective
from bert_keras.tasks.classification import has_golds
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import TokenRuns, first_tokens, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

objective = label_objective("tagging", "token_labels")
OUTSIDE = "O"


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.task_types.TaskType`.

    `token_labels` int32 [N, T]: -1 unless a word begins, and for a tag that is not a label of the task, which the model
    cannot learn but the score counts. `windows` is int32 [N, T]: the number, from 0, of the word of the row that begins
    at a position; -1: none.
    """
    words = [str(row.inputs["text"]).split(" ") for row in rows]
    counts = np.fromiter(map(len, words), np.int64, len(rows))  # [N]
    word_tokens = TokenRuns.of_words(tokenizer, [word for row_words in words for word in row_words])
    ends = np.cumsum(counts)
    row_tokens, row, word, column = first_tokens(word_tokens, counts, settings)
    arrays = single_sequences(row_tokens, settings.max_seq_length, settings.truncation, tokenizer)
    begins = np.full(arrays["input_ids"].shape, -1, np.int32)
    begins[row, column] = word
    if has_golds(rows):
        ids = {label: number for number, label in enumerate(task.labels)}
        for task_row, row_words in zip(rows, words, strict=True):
            if len(task_row.gold) != len(row_words):
                raise InputError(
                    f"row {task_row.row_id} of {task.name} has {len(row_words)} words, but {len(task_row.gold)} tags; "
                    "each word must have one"
                )
        tags = np.array([ids.get(tag, -1) for task_row in rows for tag in task_row.gold], np.int32)
        arrays["token_labels"] = np.full_like(begins, -1)
        arrays["token_labels"][row, column] = tags[(ends - counts)[row] + word]
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)), begins)


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[list[str]]:
    """The tag of each word: the largest of the logits [N, T, labels] at its first token."""
    answers = [[OUTSIDE] * len(str(row.inputs["text"]).split(" ")) for row in rows]
    words = features.windows
    row, column = np.nonzero(words >= 0)
    labels = np.argmax(outputs[row, column], axis=-1)
    for i, word, label in zip(row.tolist(), words[row, column].tolist(), labels.tolist(), strict=True):
        answers[i][word] = task.labels[label]
    return answers
