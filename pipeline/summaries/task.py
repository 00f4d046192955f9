"""Figures of a fine-tuning, for `summary.json` and the screen."""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

from bert_keras.files import files_in
from bert_keras.finetuning.artifact_files import PREDICTIONS_FOLDER, RESTARTS_FILE, SEARCH_FILE
from bert_keras.tasks.settings import TaskSpec
from components.evaluator.results import evaluated, teacher_figures
from components.io.shards import read_json
from pipeline import stages
from pipeline.recipes.finetuning import FineTuneRecipe
from pipeline.runs.lineage import Run
from pipeline.runs.spec import InitialFiles

BATCH, RATE, EPOCHS = "train_batch_size", "learning_rate", "num_train_epochs"


def figures(run: Run, recipe: FineTuneRecipe, initial: InitialFiles | None) -> dict[str, Any]:
    """The figures of a finished run."""
    spec = TaskSpec.load(run.output(stages.TASK_EXAMPLE_GEN, stages.EXAMPLES).uri)
    measured = evaluated(run.output(stages.EVALUATOR, stages.EVALUATION).uri)
    model_run = run.output(stages.TRAINER, stages.MODEL_RUN).uri
    predictions = os.path.join(model_run, PREDICTIONS_FOLDER)
    return {
        "recipe": dataclasses.asdict(recipe),
        "initial_model": initial and dataclasses.asdict(initial),
        "task": recipe.name,
        "labels": spec.task.labels,
        "rows": spec.counts,
        "rows_skipped": spec.skipped,
        # The official scores; the gate checks the first.
        "scores": {name: measured[name] for name in recipe.row.metrics},
        "teacher": teacher_figures(run.output(stages.EVALUATOR, stages.EVALUATION).uri) or None,
        "search": read_json(os.path.join(model_run, SEARCH_FILE)) if recipe.search.enabled else None,
        "restarts": read_json(os.path.join(model_run, RESTARTS_FILE)),
        "predictions": {split: files_in(os.path.join(predictions, split)) for split in sorted(os.listdir(predictions))},
    }


def rows(summary: Mapping[str, Any], run_dir: str) -> dict[str, str]:
    """The rows of `figures` on the screen."""
    skipped = sum(summary["rows_skipped"].values())
    counts = ", ".join(f"{split} {count:,}" for split, count in summary["rows"].items())
    shown = {"task": summary["task"], "rows": counts + (f"; {skipped:,} bad ones skipped" if skipped else "")}
    if search := summary["search"]:
        best, count = search["best"], len(search["trainings"])
        values = f"batch {best[BATCH]}, learning rate {best[RATE]:g}, {best[EPOCHS]:g} epochs"
        shown["search"] = f"{search['metric']} {best['score']:.4g}, the best of {count}: {values}"
    shown |= restart_rows(summary["restarts"])
    chances = "".join(f"; chance: {name} {_number(chance)}" for name, (chance, _) in summary["chances"].items())
    shown["scores"] = _figures(summary["scores"]) + chances
    if teacher := summary["teacher"]:
        before, costs = teacher["scores"][teacher["metric"]], teacher["costs"]
        cpu, size = (f"{costs['model'][name]:.3g} of {costs['teacher'][name]:.3g}" for name in ("cpu_ms", "megabytes"))
        share = f", {(teacher['model'] or 0.0) / before:.1%} of it" if before else ""
        shown["teacher"] = f"{_figures(teacher['scores'])}{share}; {cpu} CPU ms a row, {size} MB of weights"
    paths = (path for paths in summary["predictions"].values() for path in paths)
    return {**shown, "predictions": ", ".join(os.path.relpath(path, run_dir) for path in paths)}


def restart_rows(report: Mapping[str, Any]) -> dict[str, str]:
    """The rows of `bert_keras.finetuning.restarts`' report on the screen; none for a single training."""
    scores, metric, chosen = report["scores"], report["metric"], [str(seed) for seed in report["chosen"]]
    if len(scores) == 1:
        return {}
    by_seed = ", ".join(f"{seed}: {_number(of_seed[metric])}" for seed, of_seed in scores.items())
    rows = {"restarts": f"{metric} {_number(report['mean'])} ± {_number(report['deviation'])}, by seed {by_seed}"}
    if report["ensemble"]:
        rows |= {f"seed {seed}": _figures(scores[seed]) for seed in chosen}
        rows["ensemble"] = f"{_figures(report['ensemble'])}: seeds {', '.join(chosen)}"
    else:
        rows["restarts"] += f"; chosen: seed {chosen[0]}"
    if None in (of_seed[metric] for of_seed in scores.values()):
        rows["restarts"] += "; mean and deviation are of the seeds with a score"
    rows["note"] = f"best of {len(scores)} on the rows that they are scored on: optimistic; the mean is not"
    return rows


def _figures(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in scores.items())


def _number(value: float | None) -> str:
    return "no score" if value is None or math.isnan(value) else f"{value:.4g}"
