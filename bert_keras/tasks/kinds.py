"""The kinds of tasks, a module each: what is learned, the model, its features, and how answers are read off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import keras

from bert_keras.config import BertConfig
from bert_keras.objectives.objective import Objective
from bert_keras.tasks import classification, multiple_choice, regression, span, tagging
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenization import Tokenizer


class Kind(Protocol):
    """What a module of a kind has."""

    @property
    def objective(self) -> Objective:
        """Its name is the kind's; what it reads of a batch beside the model's inputs is in `features`."""

    def create_model(self, config: BertConfig, task: Task, settings: TaskSettings, seed: int) -> keras.Model:
        """A model with drawn weights, not built; its encoder is the attribute `backbone`."""

    def features(
        self, rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer
    ) -> TaskFeatures:
        """What the model reads of rows. With golds also what the objective reads: labels, and
        `weights`, all 1.

        Sequences are as long as the longest of them, at most `settings.max_seq_length`.

        Raises:
            InputError: a gold is none that the task has; names the row.
        """

    def answers(
        self, outputs: Any, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
    ) -> list[Any]:
        """The answers of the rows, in the form of their golds, in order.

        `outputs` are the model's, NumPy [N, ...] of all features (a dict of such, where the model returns one).
        """


KINDS: dict[str, Kind] = {
    "classification": classification,
    "regression": regression,
    "multiple_choice": multiple_choice,
    "span": span,
    "tagging": tagging,
}


def kind_of(task: Task) -> Kind:
    """The kind of a task."""
    return KINDS[task.kind]
