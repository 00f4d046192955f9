"""The recipe of a fine-tuning: its task's row, and the settings that `bert-tfx finetune TASK --set` changes.

The defaults are the paper's (appendix A.3) and google-research/bert's.
"""

from __future__ import annotations

import dataclasses
import math

from bert_keras.config import ExportSettings
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, SearchSettings, TaskSettings
from bert_keras.tasks.table import Task, task_of
from components.evaluator.settings import SLICED_BY, TaskSliceSettings
from components.serving_validator.limits import ServingLimits
from components.task_example_gen.settings import TaskDataSettings
from pipeline.config import check_precision, with_settings


@dataclasses.dataclass(frozen=True)
class TaskGate:
    """What a fine-tuned model must reach on the held-out split to be blessed and pushed.

    Attributes:
        min_score: the lowest score, the first of the task's official ones, on its official scale: SQuAD's is in
            percent, the others' are shares of 1.
        max_score_decrease: how much lower it may be than that of the last blessed model of the same task and labels;
            negative asks for an improvement.
        min_slice_scores: the same lowest score of parts of the rows, as `label=1:0.7`, `length=over 256:0.5` or
            `source=fiction:0.6`; a part must have rows.
    """

    min_score: float = 0.0
    max_score_decrease: float = 0.0
    min_slice_scores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for text in self.min_slice_scores:
            _slice_bound(text)

    @property
    def slice_bounds(self) -> list[tuple[str, str, float]]:
        """`min_slice_scores` by what, of what and how low: ("length", "over 256", 0.5)."""
        return [_slice_bound(text) for text in self.min_slice_scores]


def _slice_bound(text: str) -> tuple[str, str, float]:
    by, _, rest = text.partition("=")
    of, _, least = rest.rpartition(":")
    try:
        bound = float(least)
    except ValueError:
        bound = math.nan
    if by not in SLICED_BY.values() or not of or not math.isfinite(bound):
        known = ", ".join(sorted(SLICED_BY.values()))
        raise ValueError(f"gate.min_slice_scores has {text!r}; it takes {known} as in 'length=over 256:0.5'")
    return by, of, bound


@dataclasses.dataclass(frozen=True)
class FineTuneRecipe:
    """Everything that decides what a fine-tuning makes, but for the data and the model it begins with.

    Attributes:
        name: the task's.
        data: files -> rows.
        task: rows -> pieces -> answers.
        training: rows -> model.
        gate: what a model must reach to be pushed.
        search: whether, and among which values, the best settings of the training are looked for.
        restarts: how many models are trained, and how many of them are pushed as one.
        export: how the model is written for serving.
        serving: what a server with the model must keep to for it to be pushed.
        slices: in which parts the held-out rows are scored, too.
    """

    name: str
    data: TaskDataSettings
    task: TaskSettings
    training: FineTuningConfig
    gate: TaskGate
    search: SearchSettings = dataclasses.field(default_factory=SearchSettings)
    restarts: RestartSettings = dataclasses.field(default_factory=RestartSettings)
    export: ExportSettings = dataclasses.field(default_factory=ExportSettings)
    serving: ServingLimits = dataclasses.field(default_factory=ServingLimits)
    slices: TaskSliceSettings = dataclasses.field(default_factory=TaskSliceSettings)

    def __post_init__(self) -> None:
        check_precision(self.export, self.serving)
        of_labels = self.slices.by_label and self.row.kind == "classification"
        scored = {"label": of_labels, "source": self.slices.by_source}
        for by, of, _ in self.gate.slice_bounds:
            if not scored.get(by, of in self.slices.length_groups):
                groups = f"; lengths are {', '.join(self.slices.length_groups) or 'none'}" if by == "length" else ""
                raise ValueError(f"gate.min_slice_scores has {by} {of!r}, which slices does not have{groups}")

    @property
    def row(self) -> Task:
        """The task; its labels may still be those of the data."""
        return task_of(self.name)


# What differs from the defaults, by task, as `--set` would change it. `gate.min_score` is above what a guess gets.
_OF_TASK: dict[str, tuple[str, ...]] = {
    # Always "1" has an F1 of 0.81.
    "mrpc": ("gate.min_score=0.82",),
    "sts-b": ("gate.min_score=0.5",),
    "cola": ("gate.min_score=0.1",),
    "mnli": ("gate.min_score=0.5",),
    "imdb": ("task.max_seq_length=512", "task.truncation=head_tail"),
    "ag-news": ("gate.min_score=0.5",),
    # Nobody knows how many classes, and how often each.
    "text": ("gate.min_score=0",),
    "text-pair": ("gate.min_score=0",),
    # Paper, section 4.4.
    "swag": ("training.train_batch_size=16", "training.learning_rate=2e-5", "gate.min_score=0.3"),
    "codah": ("training.train_batch_size=16", "training.learning_rate=2e-5", "gate.min_score=0.3"),
    # Paper, sections 4.2 and 4.3; batch and learning rate are the defaults.
    "squad1.1": ("task.max_seq_length=384", "gate.min_score=50"),
    "squad2.0": ("task.max_seq_length=384", "training.num_train_epochs=2", "gate.min_score=50"),
    "ner": ("gate.min_score=0.3",),
}


def finetuning(task: str) -> FineTuneRecipe:
    """The recipe of a task.

    Command:   bert-tfx finetune sst-2 --data SST-2/ --init bert-base/
    Hardware:  as for pre-training; a GPU for anything larger than MiniLM
    Time, expected scores: not measured as a whole yet; benchmarks/finetune_results.py does

    Raises:
        InputError: there is no such task; names those that there are.
    """
    row = task_of(task)
    recipe = FineTuneRecipe(
        name=row.name,
        data=TaskDataSettings(),
        task=TaskSettings(),
        training=FineTuningConfig(),
        # Better than a guess among two classes.
        gate=TaskGate(min_score=0.55),
    )
    return with_settings(recipe, _OF_TASK.get(row.name, ()))
