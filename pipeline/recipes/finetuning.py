"""Recipes of fine-tuning: a task, and the settings that `bert-tfx finetune TASK --set` changes.

The defaults are the paper's (appendix A.3) and google-research/bert's.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from bert_keras.errors import POSITIVE, Settings
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.saved_model.settings import ExportSettings
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, SearchSettings, TaskSettings
from bert_keras.tasks.table import Task, task_of
from components.evaluator.settings import SLICED_BY, SliceSettings
from components.serving_validator.limits import ServingLimits
from components.task_example_gen.settings import TaskDataSettings
from pipeline.recipes.settings import check_precision


@dataclasses.dataclass(frozen=True)
class TaskGate(Settings, section="gate"):
    """Thresholds on the held-out split for a fine-tuned model to be blessed and pushed.

    Attributes:
        min_score: minimum of the task's first official score, on its official scale: per cent for SQuAD, a share of 1
            for the others.
        max_score_decrease: allowed decrease against the last blessed model of the same task and labels; a negative
            value requires an improvement.
        min_slice_scores: minimum of the same score for slices of the rows, such as `label=1:0.7`, `length=over 256:0.5`
            or `source=fiction:0.6`; a slice must have rows.
        min_share_of_teacher: minimum of that score as a share of the teacher's on the same rows; None: any.
        allow_chance: lifts the floor of chance. Otherwise the score must also exceed the best guess without reading
            (`components.evaluator.chance`) by two standard errors; a correlation must exceed 0 by as much.
    """

    min_score: float = 0.0
    max_score_decrease: float = 0.0
    min_slice_scores: tuple[str, ...] = ()
    min_share_of_teacher: Annotated[float | None, POSITIVE] = None
    allow_chance: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for text in self.min_slice_scores:
            _slice_bound(text)

    @property
    def slice_bounds(self) -> list[tuple[str, str, float]]:
        """`min_slice_scores` as (type, value, minimum), such as ("length", "over 256", 0.5)."""
        return [_slice_bound(text) for text in self.min_slice_scores]


def _slice_bound(text: str) -> tuple[str, str, float]:
    by, _, condition = text.partition("=")
    value, _, number = condition.rpartition(":")
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if by not in SLICED_BY.values() or not value or not math.isfinite(bound):
        known = ", ".join(sorted(SLICED_BY.values()))
        raise ValueError(f"gate.min_slice_scores has {text!r}; it takes {known} as in 'length=over 256:0.5'")
    return by, value, bound


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuneRecipe:
    """All settings of the task `name`: files -> rows (`data`) -> tokens (`task`) -> model; without its files."""

    workflow: ClassVar[str] = "finetune"
    name: str
    data: TaskDataSettings = dataclasses.field(default_factory=TaskDataSettings)
    task: TaskSettings = dataclasses.field(default_factory=TaskSettings)
    training: FineTuningConfig = dataclasses.field(default_factory=FineTuningConfig)
    gate: TaskGate
    distillation: DistillationSettings = dataclasses.field(default_factory=DistillationSettings)
    search: SearchSettings = dataclasses.field(default_factory=SearchSettings)
    restarts: RestartSettings = dataclasses.field(default_factory=RestartSettings)
    export: ExportSettings = dataclasses.field(default_factory=ExportSettings)
    serving: ServingLimits = dataclasses.field(default_factory=ServingLimits)
    slices: SliceSettings = dataclasses.field(default_factory=SliceSettings)

    def __post_init__(self) -> None:
        check_precision(self.export, self.serving)
        if self.distillation.relations_weight:
            raise ValueError("distillation.relations_weight is for `bert-tfx pretrain` and `train`; set it to 0")
        if self.export.engine == "onnx" and (
            self.restarts.ensemble > 1 or self.task.bilstm or self.task.features or self.row.contrastive
        ):
            raise ValueError(
                "export.engine=onnx serves one model without a BiLSTM, not of sentence vectors: leave "
                "restarts.ensemble, task.bilstm and task.features as they are; `convert --to onnx` a model of vectors"
            )
        scored = {"label": self.row.kind == "classification", "source": self.slices.by_source}
        for by, value, _ in self.gate.slice_bounds:
            if not scored.get(by, value in self.slices.length_groups):
                groups = f"; lengths are {', '.join(self.slices.length_groups) or 'none'}" if by == "length" else ""
                raise ValueError(f"gate.min_slice_scores has {by} {value!r}, which slices does not have{groups}")

        if self.row.contrastive:
            if self.restarts.ensemble > 1:
                raise ValueError("restarts.ensemble: vectors of several models have no mean; set 1")
            if self.export.embedding.pooling not in ("none", self.task.pooling):
                raise ValueError(
                    f"export.embedding.pooling is {self.export.embedding.pooling}, and the trained one, task.pooling, "
                    f"{self.task.pooling}; set only task.pooling"
                )

    @property
    def row(self) -> Task:
        """The task; its labels may still be unknown until the data are read."""
        return task_of(self.name)


def _recipe(name: str, min_score: float, sliced: bool = True, **sections: Any) -> FineTuneRecipe:
    slices = SliceSettings() if sliced else SliceSettings((), by_source=False)
    return FineTuneRecipe(name=task_of(name).name, gate=TaskGate(min_score), slices=slices, **sections)


def glue(task: str) -> FineTuneRecipe:
    """GLUE (paper, section 4.1): bert-tfx finetune sst-2 --data SST-2/ --init bert-base/; scores in docs/results.md."""
    # Above the score of guessing: always "1" has an F1 of 0.81 on MRPC.
    min_scores = {"mrpc": 0.82, "sts-b": 0.5, "cola": 0.1, "mnli": 0.5}
    return _recipe(task, min_scores.get(task_of(task).name, 0.55))


def imdb(task: str = "imdb") -> FineTuneRecipe:
    """Film reviews, the first and last tokens of each: bert-tfx finetune imdb --data aclImdb/ --init bert-base/."""
    return _recipe(task, 0.55, task=TaskSettings(max_seq_length=512, truncation="head_tail"))


def table(task: str) -> FineTuneRecipe:
    """Texts and labels in a table: bert-tfx finetune text --train rows.csv --init bert-base/; any number of classes."""
    return _recipe(task, 0.5 if task_of(task).name == "ag-news" else 0.0)


def reranker(task: str) -> FineTuneRecipe:
    """The relevance of passages for a query: bert-tfx finetune rerank --train rows.jsonl --init bert-base/."""
    training = FineTuningConfig(num_train_epochs=1.0, learning_rate=2e-5)
    # A part of the passages of a query would be an easier ranking.
    rows = TaskSettings(max_seq_length=256, activation="sigmoid")
    return _recipe(task, 0.1, sliced=False, task=rows, training=training)


def multiple_choice(task: str) -> FineTuneRecipe:
    """The best ending of four (paper, section 4.4): bert-tfx finetune swag --data swag/ --init bert-base/."""
    return _recipe(task, 0.3, training=FineTuningConfig(train_batch_size=16, learning_rate=2e-5))


def squad(task: str) -> FineTuneRecipe:
    """Answers in a text (paper, sections 4.2, 4.3): bert-tfx finetune squad1.1 --data squad/ --init bert-base/."""
    training = FineTuningConfig(num_train_epochs=2.0) if task_of(task).unanswerable else FineTuningConfig()
    return _recipe(task, 50.0, task=TaskSettings(max_seq_length=384), training=training)


def ner(task: str = "ner") -> FineTuneRecipe:
    """Named entities (paper, section 5.3): bert-tfx finetune ner --data conll/ --init bert-base-cased/ --cased."""
    return _recipe(task, 0.3)


def sentences(task: str) -> FineTuneRecipe:
    """Vectors of texts, from pairs or single texts (docs/finetuning.md#vectors-of-texts).

    Command:   bert-tfx finetune sentence-similarity --train texts.jsonl --eval STS-B/dev.tsv --init bert-base/
    """
    is_similarity = task_of(task).kind == "similarity"
    # SimCSE's for single texts (arXiv 2104.08821), with BERT's warm-up.
    training = FineTuningConfig(num_train_epochs=1.0, train_batch_size=64, learning_rate=3e-5)
    # For retrieval, a part of the rows would be searched for a part of the texts, which is easier.
    rows = TaskSettings(max_seq_length=64)
    return _recipe(task, 0.4 if is_similarity else 0.1, sliced=is_similarity, task=rows, training=training)


# The recipe of each task, by the reader of its files (`bert_keras.tasks.table`).
TASK_RECIPES: dict[str, Callable[[str], FineTuneRecipe]] = {
    "glue": glue,
    "imdb": imdb,
    "table": table,
    "queries": reranker,
    "swag": multiple_choice,
    "codah": multiple_choice,
    "squad": squad,
    "conll": ner,
    "sentences": sentences,
}


def finetuning(task: str) -> FineTuneRecipe:
    """The recipe of a task; InputError, which names the known ones, if there is no such task."""
    return TASK_RECIPES[task_of(task).reader](task)
