"""Runs an experiment; finished units are reused."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.ablations.experiment import MINIMAL_PAIRS, AblationExperiment, Arm, Column
from benchmarks.ablations.recipes import AblationRecipe
from benchmarks.ablations.results import FINETUNED, PRETRAINED, Result, Results, Unit
from bert_keras.errors import InputError
from pipeline.recipes.settings import with_settings

if TYPE_CHECKING:
    from benchmarks.ablations.trainer import LocalTrainer

# By (arm's name, column's header): one figure per seed; shares in per cent.
Figures = dict[tuple[str, str], list[float]]


@dataclasses.dataclass(frozen=True)
class PretrainingStep:
    """A step of a pre-training, whose weights a fine-tuning starts from.

    Attributes:
        folder: the pre-training's; "": the given model, with step 0.
        step: step of the checkpoint; None: the last; 0: random weights.
    """

    folder: str
    recipe: AblationRecipe
    step: int | None


@dataclasses.dataclass(frozen=True)
class Job:
    """A unit with its place in the experiment.

    Attributes:
        title: name in progress messages.
        column: its column; None for a pre-training.
        start: for a fine-tuning, the job of its initial checkpoint; None for a given model.
    """

    unit: Unit
    title: str
    arm: Arm
    recipe: AblationRecipe
    column: Column | None = None
    start: Job | None = None


def jobs_of(
    experiment: AblationExperiment, recipe: AblationRecipe, given: Sequence[str], runner: LocalTrainer
) -> list[Job]:
    """All jobs of an experiment: each distinct pre-training, then the fine-tunings of each arm, column and seed.

    Fine-tuning `seed` starts from pre-training `seed % ablation.pretrainings` of its arm.

    Args:
        given: the user's settings; they override the scale's settings of a task, but not an arm's.
    """
    pretrainings: dict[str, Job] = {}
    of_arm: dict[str, list[Job]] = {}
    count = recipe.ablation.pretrainings
    for arm in experiment.arms if not runner.given_model else ():
        for number in range(count):
            settings = with_settings(recipe, (*arm.pretraining, f"training.seed={recipe.training.seed + number}"))
            unit = Unit.of(PRETRAINED, settings, texts=runner.texts)
            title = f"pre-training {arm.name}" + (f", seed {settings.training.seed}" if count > 1 else "")
            job = pretrainings.setdefault(unit.hash, Job(unit, title, arm, settings))
            of_arm.setdefault(arm.name, []).append(job)
    fine_tunings: list[Job] = []
    for arm in experiment.arms:
        if runner.given_model and arm.pretraining != experiment.arms[0].pretraining:
            continue  # another model's
        for column in experiment.columns:
            if column.task not in runner.data:
                continue
            starts: list[Job | None] = [*of_arm.get(arm.name, [None])]
            # Nothing is drawn for minimal pairs.
            for seed in range(len(starts) if column.task == MINIMAL_PAIRS else recipe.ablation.seeds):
                start = starts[seed % len(starts)]
                fine_tunings.append(_fine_tuning(recipe, given, runner, arm, column, start, seed))
    return [*pretrainings.values(), *fine_tunings]


def _fine_tuning(
    recipe: AblationRecipe,
    given: Sequence[str],
    runner: LocalTrainer,
    arm: Arm,
    column: Column,
    start: Job | None,
    seed: int,
) -> Job:
    settings_of_task = recipe.of_task.get(column.task, ())
    words = (*settings_of_task, *given, *column.settings, *arm.finetuning, f"finetuning.seed={seed}")
    settings = with_settings(recipe, words)
    positions = recipe.model.max_position_embeddings
    if start and settings.task.max_seq_length > positions:
        raise InputError(
            f"task.max_seq_length is {settings.task.max_seq_length} for {column.task}, above "
            f"model.max_position_embeddings, {positions}: change one of them with --set"
        )
    last = recipe.training.num_train_steps
    step = column.step if arm.step is None else arm.step
    step = None if step == last else step
    given_start = runner.shape if step == 0 else runner.texts
    begin = start.unit.hash if start else given_start
    unit = Unit.of(FINETUNED, settings, task=column.task, rows=runner.data[column.task], start=begin, step=step)
    return Job(unit, f"{arm.name}, {column.header}, seed {seed}", arm, settings, column, start)


def run(jobs: Sequence[Job], results: Results, runner: LocalTrainer, tell: Callable[[str], None]) -> dict[str, Result]:
    """Run the units without a result; return the result of each unit by its hash. Arms and columns may share a unit."""
    by_hash = {job.unit.hash: result for job in jobs if (result := results.load(job.unit)) is not None}
    total = len({job.unit.hash for job in jobs})
    if by_hash:
        tell(f"{len(by_hash)} of {total} units are already in {results.output}")
    for job in jobs:
        if job.unit.hash in by_hash:
            continue
        place = f"[{len(by_hash) + 1}/{total}] {job.title}"
        tell(place)
        started = time.monotonic()
        figures = _run_job(job, results, runner)
        result = Result(figures, round(time.monotonic() - started, 2))
        results.save(job.unit, result)
        by_hash[job.unit.hash] = result
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        tell(f"{place}: {shown}; {result.seconds:.0f} s")
    return by_hash


def _run_job(job: Job, results: Results, runner: LocalTrainer) -> dict[str, float]:
    folder = results.folder(job.unit)
    if job.column is None:
        return runner.pretrain(job.recipe, folder)
    start, step = None, job.unit.settings["inputs"]["step"]
    if job.start:
        start = PretrainingStep(results.folder(job.start.unit), job.start.recipe, step)
    elif step == 0:
        start = PretrainingStep("", job.recipe, step)
    return runner.fine_tune(job.recipe, job.column.task, start, folder)


def figures_of(experiment: AblationExperiment, jobs: Sequence[Job], results: Mapping[str, Result]) -> Figures:
    """The figures of each cell with results, in the order of the seeds."""
    figures: Figures = {}
    starts: dict[str, dict[str, Result]] = {}  # of an arm, by unit
    for job in jobs:
        if job.column is None:
            continue
        # SQuAD's scores are already in per cent (`bert_keras.tasks.metrics.scores`).
        share = 1.0 if job.column.task.startswith("squad") else 100.0
        scores = results[job.unit.hash].figures
        cell = figures.setdefault((job.arm.name, job.column.header), [])
        cell += [share * scores[job.column.metric]] if job.column.metric in scores else []
        if job.start:
            starts.setdefault(job.arm.name, {})[job.start.unit.hash] = results[job.start.unit.hash]
    for arm_name, pretrainings in starts.items():
        metrics = [result.figures for result in pretrainings.values()]
        for column in experiment.columns:
            if not column.task and column.metric in metrics[0]:
                figures[arm_name, column.header] = [values[column.metric] for values in metrics]
    return figures
