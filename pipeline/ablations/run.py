"""Runs an experiment, unit by unit: what is there already is not done again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bert_keras.errors import InputError
from bert_keras.tasks.table import task_of
from pipeline.ablations.experiment import Arm, Column, Experiment
from pipeline.ablations.results import FINETUNED, PRETRAINED, Result, Results, Unit
from pipeline.ablations.scales import AblationRecipe
from pipeline.config import with_settings

# By (arm's name, column's header): a figure a seed, in per cent where it is a share.
Figures = dict[tuple[str, str], list[float]]


@dataclasses.dataclass(frozen=True)
class Begin:
    """What a fine-tuning begins with.

    Attributes:
        folder: of the pre-training.
        recipe: its settings.
        step: after which; None: the last; 0: before the first, weights as they are drawn.
    """

    folder: str
    recipe: AblationRecipe
    step: int | None


class Trainer(Protocol):
    """What does a unit (`pipeline.ablations.trainer.Trainer`); tests have another."""

    @property
    def texts(self) -> str:
        """A fingerprint of what is pre-trained on; of a model that is given, of that."""

    @property
    def data(self) -> Mapping[str, str]:
        """By task that is given: a fingerprint of its files."""

    @property
    def given_model(self) -> bool:
        """Whether a model is given, which all arms start from."""

    def pretrain(self, recipe: AblationRecipe, folder: str) -> dict[str, float]:
        """Pre-trains into a folder, and returns the held-out metrics of the last step."""

    def fine_tune(self, recipe: AblationRecipe, task: str, begin: Begin | None, folder: str) -> dict[str, float]:
        """Fine-tunes a model, and returns the scores of the held-out rows; `folder` is for work, and is removed."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A unit, and what it is for.

    Attributes:
        unit: which.
        title: what progress calls it.
        arm: whose.
        recipe: its settings.
        column: of a fine-tuning; None: it is a pre-training.
        start: of a fine-tuning, what it begins with; None: a model that was given.
    """

    unit: Unit
    title: str
    arm: Arm
    recipe: AblationRecipe
    column: Column | None = None
    start: Job | None = None


def jobs_of(experiment: Experiment, recipe: AblationRecipe, given: Sequence[str], trainer: Trainer) -> list[Job]:
    """All jobs of an experiment: each different pre-training, then the fine-tunings of each arm, column and seed.

    Args:
        given: settings of the user, which win over the scale's own of a task, but not over an arm's.
    """
    pretrainings: dict[str, Job] = {}
    of_arm: dict[str, Job] = {}
    for arm in experiment.arms if not trainer.given_model else ():
        settings = with_settings(recipe, arm.pretraining)
        unit = Unit.of(PRETRAINED, settings, texts=trainer.texts)
        job = Job(unit, f"pre-training {arm.name}", arm, settings)
        of_arm[arm.name] = pretrainings.setdefault(unit.hash, job)
    fine_tunings: list[Job] = []
    for arm in experiment.arms:
        for column in experiment.columns:
            if column.task not in trainer.data:
                continue
            start = of_arm.get(arm.name)
            fine_tunings += [
                _fine_tuning(recipe, given, trainer, arm, column, start, seed) for seed in range(recipe.ablation.seeds)
            ]
    return [*pretrainings.values(), *fine_tunings]


def _fine_tuning(
    recipe: AblationRecipe,
    given: Sequence[str],
    trainer: Trainer,
    arm: Arm,
    column: Column,
    start: Job | None,
    seed: int,
) -> Job:
    own = recipe.of_task.get(column.task, ())
    words = (*own, *given, *column.settings, *arm.finetuning, f"finetuning.seed={seed}")
    settings = with_settings(recipe, words)
    longest = recipe.model.max_position_embeddings
    if start and settings.task.max_seq_length > longest:
        raise InputError(
            f"task.max_seq_length is {settings.task.max_seq_length} for {column.task}, above "
            f"model.max_position_embeddings, {longest}: change one of them with --set"
        )
    last = recipe.training.num_train_steps
    step = column.step if arm.step is None else arm.step
    step = None if step == last else step
    begin = start.unit.hash if start else trainer.texts
    unit = Unit.of(FINETUNED, settings, task=column.task, rows=trainer.data[column.task], start=begin, step=step)
    return Job(unit, f"{arm.name}, {column.header}, seed {seed}", arm, settings, column, start)


def run(jobs: Sequence[Job], results: Results, trainer: Trainer, say: Callable[[str], None]) -> dict[str, Result]:
    """Does what is not done, and returns the result of each unit by its hash."""
    found = {job.unit.hash: result for job in jobs if (result := results.load(job.unit)) is not None}
    once = _each_once(jobs)
    left = [job for job in once if job.unit.hash not in found]
    done = [(job.unit.kind, found[job.unit.hash].seconds) for job in once if job.unit.hash in found]
    if done:
        say(f"{len(done)} of {len(done) + len(left)} units are there already, in {results.output}")
    total = len(done) + len(left)
    while left:
        job = left[0]
        say(f"[{len(done) + 1}/{total}] {job.title}{_remaining(done, left)}")
        started = time.monotonic()
        figures = _do(job, results, trainer)
        result = Result(figures, round(time.monotonic() - started, 2))
        results.save(job.unit, result)
        found[job.unit.hash] = result
        done.append((job.unit.kind, result.seconds))
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        say(f"[{len(done)}/{total}] {job.title}: {shown}; {result.seconds:.0f} s")
        left.pop(0)
    return found


def _each_once(jobs: Sequence[Job]) -> list[Job]:
    """The first job of each unit: arms and columns may share one."""
    first: dict[str, Job] = {}
    for job in jobs:
        first.setdefault(job.unit.hash, job)
    return list(first.values())


def _do(job: Job, results: Results, trainer: Trainer) -> dict[str, float]:
    folder = results.folder(job.unit)
    if job.column is None:
        return trainer.pretrain(job.recipe, folder)
    begin = None
    if job.start:
        begin = Begin(results.folder(job.start.unit), job.start.recipe, job.unit.settings["inputs"]["step"])
    return trainer.fine_tune(job.recipe, job.column.task, begin, folder)


def seconds_left(done: Sequence[tuple[str, float]], left: Sequence[str]) -> float | None:
    """What units of kinds `left` will take, by the mean of those of their kind in `done`; None: nothing says it.

    >>> seconds_left([("pretrained", 60.0), ("finetuned", 4.0), ("finetuned", 6.0)], ["pretrained", "finetuned"])
    65.0
    """
    means = {}
    for kind in set(left):
        seconds = [taken for of, taken in done if of == kind]
        if not seconds:
            return None
        means[kind] = sum(seconds) / len(seconds)
    return sum(means[kind] for kind in left)


def _remaining(done: Sequence[tuple[str, float]], left: Sequence[Job]) -> str:
    seconds = seconds_left(done, [job.unit.kind for job in left])
    if seconds is None:
        return ""
    return f"; about {seconds / 60:.0f} minutes left" if seconds > 90 else "; a minute left"


def figures_of(experiment: Experiment, jobs: Sequence[Job], found: Mapping[str, Result]) -> Figures:
    """The figures of each cell that something was run for, in the order of the seeds."""
    figures: Figures = {}
    of_arm = {}
    for job in jobs:
        if job.column is None:
            continue
        # SQuAD's scores are per cent already (`bert_keras.tasks.scores`).
        share = 1.0 if task_of(job.column.task).kind == "span" else 100.0
        cell = figures.setdefault((job.arm.name, job.column.header), [])
        cell.append(share * found[job.unit.hash].figures[job.column.metric])
        if job.start:
            of_arm[job.arm.name] = job.start
    for arm_name, start in of_arm.items():
        for column in experiment.columns:
            metrics = found[start.unit.hash].figures
            if not column.task and column.metric in metrics:
                figures[arm_name, column.header] = [metrics[column.metric]]
    return figures
