"""The task types: model, objective, features and answers of each."""

import dataclasses
from typing import Any

import keras

from bert_keras.models import task_models
from bert_keras.models.config import BertConfig
from bert_keras.objectives.labels import label_objective, sigmoid_nll_and_hits
from bert_keras.objectives.objective import Objective
from bert_keras.tasks import objectives
from bert_keras.tasks.answers import task_answers
from bert_keras.tasks.features import task_features
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task


@dataclasses.dataclass(frozen=True)
class TaskType:
    """A task type: the class of its model, its objective, whose labels are in `features`, and two functions."""

    model: type[keras.Model]
    objective: Objective
    features = staticmethod(task_features)
    answers = staticmethod(task_answers)

    def create_model(
        self, config: BertConfig, task: Task, settings: TaskSettings, seed: int, embedding_size: int | None = None
    ) -> keras.Model:
        """Create a model with random weights, not built; its encoder is the attribute `backbone`."""
        arguments: dict[str, Any] = {"pooling": settings.pooling} if task.contrastive else settings.on_encoder
        if task.contrastive and (rate := settings.dropout):
            config = dataclasses.replace(config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        if task.has_labels:
            arguments["num_labels"] = len(task.labels)
        return self.model(config, seed=seed, embedding_size=embedding_size, **arguments)


_SIMILARITY = TaskType(task_models.BertForSentenceSimilarity, objectives.vector_objective)
TASK_TYPES: dict[str, TaskType] = {
    "classification": TaskType(task_models.BertForSequenceClassification, label_objective("classification")),
    "multi_label": TaskType(
        task_models.BertForSequenceClassification, label_objective("multi_label", nll_and_hits=sigmoid_nll_and_hits)
    ),
    "regression": TaskType(task_models.BertForRegression, objectives.number_objective),
    "ranking": TaskType(task_models.BertForRegression, objectives.ranking_objective),
    "multiple_choice": TaskType(task_models.BertForMultipleChoice, label_objective("multiple_choice")),
    "span": TaskType(task_models.BertForSpanExtraction, objectives.span_objective),
    "tagging": TaskType(task_models.BertForTokenClassification, label_objective("tagging", "token_labels")),
    "similarity": _SIMILARITY,
    "retrieval": _SIMILARITY,
}


def task_type_of(task: Task) -> TaskType:
    """The type of a task."""
    return TASK_TYPES[task.kind]
