"""The table of tasks: task type, files, labels and scores (paper, sections 4 and 5.3)."""

import dataclasses
import math
from typing import Literal

from bert_keras.errors import InputError

Kind = Literal[
    "classification",
    "multi_label",
    "regression",
    "ranking",
    "multiple_choice",
    "span",
    "tagging",
    "similarity",
    "retrieval",
]
# Between the names of a row's labels, in tables, prediction files and the signature `evaluate`.
SEPARATOR = "|"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task."""

    name: str  # on the command line
    kind: Kind  # task type: model, features and answers (`bert_keras.tasks.task_types`)
    reader: str  # reader of its files (`components.task_example_gen.readers`)
    metrics: tuple[str, ...]  # the official scores (`bert_keras.tasks.metrics.scores`); the gate judges by the first
    pair: bool = False  # whether a row has two texts
    labels: tuple[str, ...] = ()  # if it `has_labels`, in the order of their ids; empty: those of the training rows
    label_from: float = 0.0  # regression: lowest value
    label_to: float = 1.0  # regression: highest value
    unanswerable: bool = False  # spans: whether a question may have no answer (SQuAD 2.0)
    by_letters: bool = False  # spans: whether a letter of a script without blanks is a word in the scores (MLQA)

    @property
    def answer_kind(self) -> Kind:
        """The type whose model and served answers it has: a ranking's are those of a regression."""
        return "regression" if self.kind == "ranking" else self.kind

    @property
    def reads_pooler(self) -> bool:
        """Return whether the head reads, and so trains, the pooler."""
        return self.answer_kind in ("classification", "multi_label", "regression", "multiple_choice")

    @property
    def has_labels(self) -> bool:
        """True if its answers are labels."""
        return self.kind in ("classification", "multi_label", "tagging")

    @property
    def contrastive(self) -> bool:
        """Return whether it trains vectors of texts, from positive pairs or single texts, without labels."""
        return self.kind in ("similarity", "retrieval")


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
        Task("text-labels", "multi_label", "table", ("micro_f1", "macro_f1")),
        Task("text-pair-labels", "multi_label", "table", ("micro_f1", "macro_f1"), pair=True),
        Task("text-score", "regression", "table", ("spearman", "pearson"), False, (), -math.inf, math.inf),
        Task("text-pair-score", "regression", "table", ("spearman", "pearson"), True, (), -math.inf, math.inf),
        Task("rerank", "ranking", "queries", ("mrr@10", "ndcg@10"), pair=True),
        Task("swag", "multiple_choice", "swag", ("accuracy",)),
        Task("codah", "multiple_choice", "codah", ("accuracy",)),
        Task("squad1.1", "span", "squad", ("f1", "exact_match")),
        Task("squad2.0", "span", "squad", ("f1", "exact"), unanswerable=True),
        Task("mlqa", "span", "squad", ("f1", "exact_match"), by_letters=True),
        Task("ner", "tagging", "conll", _ENTITIES),
        Task("sentence-similarity", "similarity", "sentences", ("spearman", "pearson")),
        Task("sentence-retrieval", "retrieval", "sentences", ("mrr@10", "recall@1", "recall@10")),
    )
}


def task_of(name: str) -> Task:
    """Look up a task by name, with or without hyphens: `sst-2` or `sst2`; InputError names the known ones."""
    for task in TASKS.values():
        if task.name.replace("-", "") == name.replace("-", ""):
            return task
    raise InputError(f"{name}: no such task; there are {', '.join(TASKS)}")
