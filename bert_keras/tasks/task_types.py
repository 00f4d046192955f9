"""The task types: model, objective, features and answers of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from bert_keras.models import task_models
from bert_keras.models.config import BertConfig
from bert_keras.objectives.objective import Objective
from bert_keras.tasks import classification, multiple_choice, regression, similarity, tagging
from bert_keras.tasks.rows import TaskFeatures
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span import task_type as span
from bert_keras.tasks.table import Task


@dataclasses.dataclass(frozen=True)
class TaskType:
    """A task type.

    Attributes:
        model: class of its model.
        objective: the objective, with the task type's name; `features` has its labels.
        features: (rows, task, settings, tokenizer) -> the model's inputs; for rows with golds also the objective's
            labels, and `weights`, all 1. Sequences are padded to the longest, at most `settings.max_seq_length`.
            Raises InputError for an invalid gold; names the row.
        answers: (outputs, features, rows, task, settings) -> predictions, one per row, in the format of the golds.
            The outputs are the model's for all features, NumPy [N, ...], or a dict of such arrays.
    """

    model: type[keras.Model]
    objective: Objective
    features: Callable[..., TaskFeatures]
    answers: Callable[..., list[Any]]

    def create_model(
        self, config: BertConfig, task: Task, settings: TaskSettings, seed: int, embedding_size: int | None = None
    ) -> keras.Model:
        """Create a model with random weights, not built; its encoder is the attribute `backbone`.

        `embedding_size` is the width of the embeddings; None: the encoder's.
        """
        arguments: dict[str, Any] = {"pooling": settings.pooling} if task.contrastive else settings.on_encoder
        if task.contrastive and (rate := settings.dropout):
            config = dataclasses.replace(config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        if task.has_labels:
            arguments["num_labels"] = len(task.labels)
        return self.model(config, seed=seed, embedding_size=embedding_size, **arguments)


def _type(model: type[keras.Model], module: Any) -> TaskType:
    return TaskType(model, module.objective, module.features, module.answers)


_LABEL = _type(task_models.BertForSequenceClassification, classification)
_NUMBER = _type(task_models.BertForRegression, regression)
_SIMILARITY = _type(task_models.BertForSentenceSimilarity, similarity)
TASK_TYPES: dict[str, TaskType] = {
    "classification": _LABEL,
    "multi_label": dataclasses.replace(_LABEL, objective=classification.multi_label_objective),
    "regression": _NUMBER,
    "ranking": dataclasses.replace(_NUMBER, objective=regression.ranking_objective),
    "multiple_choice": _type(task_models.BertForMultipleChoice, multiple_choice),
    "span": _type(task_models.BertForSpanExtraction, span),
    "tagging": _type(task_models.BertForTokenClassification, tagging),
    "similarity": _SIMILARITY,
    "retrieval": _SIMILARITY,
}


def task_type_of(task: Task) -> TaskType:
    """The type of a task."""
    return TASK_TYPES[task.kind]
