"""The task types, one module each: objective, model, features, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import keras

from bert_keras.models.config import BertConfig
from bert_keras.objectives.objective import Objective
from bert_keras.tasks import classification, multiple_choice, regression, similarity, tagging
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span import task_type
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer


class TaskType(Protocol):
    """The interface of a task type's module."""

    @property
    def objective(self) -> Objective:
        """The objective, with the task type's name; `features` has its labels."""

    def create_model(
        self, config: BertConfig, task: Task, settings: TaskSettings, seed: int, embedding_size: int | None = None
    ) -> keras.Model:
        """Create a model with random weights, not built; its encoder is the attribute `backbone`.

        `embedding_size` is the width of the embeddings; None: the encoder's.
        """

    def features(
        self, rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer
    ) -> TaskFeatures:
        """The model's inputs for rows; for rows with golds also the objective's labels, and `weights`, all 1.

        Sequences are padded to the longest, at most `settings.max_seq_length`.

        Raises:
            InputError: an invalid gold; names the row.
        """

    def answers(
        self, outputs: Any, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
    ) -> list[Any]:
        """Predictions, one per row, in the same format as the golds.

        `outputs` are the model's for all features, NumPy [N, ...], or a dict of such arrays.
        """


TASK_TYPES: dict[str, TaskType] = {
    "classification": classification,
    "regression": regression,
    "multiple_choice": multiple_choice,
    "span": task_type,
    "tagging": tagging,
    "similarity": similarity,
    "retrieval": similarity,
}


def task_type_of(task: Task) -> TaskType:
    """The type of a task."""
    return TASK_TYPES[task.kind]
