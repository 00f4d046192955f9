"""The tasks, a row each: what is read, what is answered, how it is scored (paper, sections 4 and 5.3)."""

from __future__ import annotations

import dataclasses
from typing import Literal

from bert_keras.errors import InputError

Kind = Literal["classification", "regression", "multiple_choice", "span", "tagging"]


@dataclasses.dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        name: as the command line calls it.
        kind: which model, features and answers it has (`bert_keras.tasks.kinds`).
        reader: which files it comes in (`components.task_example_gen.readers`).
        metrics: the official scores, by name (`bert_keras.tasks.scores`); the first is the one a model is judged by.
        pair: whether a row has two texts.
        labels: of classification, in the order of their ids; empty: those of the training rows, sorted. Of tagging too.
        label_from, label_to: of regression: the lowest and highest value there is.
        unanswerable: of spans: whether a question may have no answer (SQuAD 2.0).
    """

    name: str
    kind: Kind
    reader: str
    metrics: tuple[str, ...]
    pair: bool = False
    labels: tuple[str, ...] = ()
    label_from: float = 0.0
    label_to: float = 1.0
    unanswerable: bool = False


def _classification(name: str, *metrics: str, pair: bool = True, labels: tuple[str, ...] = ("0", "1"), reader="glue"):
    return Task(name, "classification", reader, metrics, pair, labels)


_ENTAILMENT = ("entailment", "not_entailment")
_ENTITIES = ("f1", "precision", "recall", "accuracy")

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _classification("mnli", "accuracy", labels=("contradiction", "entailment", "neutral")),
        _classification("qqp", "f1", "accuracy"),
        _classification("qnli", "accuracy", labels=_ENTAILMENT),
        _classification("mrpc", "f1", "accuracy"),
        _classification("rte", "accuracy", labels=_ENTAILMENT),
        _classification("wnli", "accuracy"),
        Task("sts-b", "regression", "glue", ("spearman", "pearson"), True, label_to=5.0),
        _classification("sst-2", "accuracy", pair=False),
        _classification("cola", "matthews_correlation", "accuracy", pair=False),
        _classification("imdb", "accuracy", pair=False, labels=("neg", "pos"), reader="imdb"),
        _classification("ag-news", "accuracy", pair=False, labels=(), reader="table"),
        _classification("text", "accuracy", pair=False, labels=(), reader="table"),
        _classification("text-pair", "accuracy", labels=(), reader="table"),
        Task("swag", "multiple_choice", "swag", ("accuracy",)),
        Task("codah", "multiple_choice", "codah", ("accuracy",)),
        Task("squad1.1", "span", "squad", ("f1", "exact_match")),
        Task("squad2.0", "span", "squad", ("f1", "exact"), unanswerable=True),
        Task("ner", "tagging", "conll", _ENTITIES),
    )
}


def task_of(name: str) -> Task:
    """The task of a name, with its hyphens or without: `sst-2` or `sst2`.

    Raises:
        InputError: there is none; names those that there are.
    """
    for task in TASKS.values():
        if task.name.replace("-", "") == name.replace("-", ""):
            return task
    raise InputError(f"{name}: no such task; there are {', '.join(TASKS)}")
