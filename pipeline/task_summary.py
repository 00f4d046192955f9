"""A fine-tuning in figures: `summary.json`, and a screen for people."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from bert_keras.tasks.results import PREDICTIONS_FOLDER, RESTARTS_FILE
from bert_keras.tasks.settings import TaskSpec
from components.evaluator.results import evaluated
from components.shards import write_json
from pipeline.finetune_recipes import FineTuneRecipe
from pipeline.lineage import Run
from pipeline.report.page import REPORT_FILE
from pipeline.search_report import BATCH, EPOCHS, RATE, write_search
from pipeline.summary import SUMMARY_FILE, outcome, outcome_rows, print_rows

# In the run directory.
SEARCH_FOLDER = "search"


def summarize(run: Run, recipe: FineTuneRecipe, run_dir: str) -> dict[str, Any]:
    """Collects the figures of a finished run, writes `summary.json` into `run_dir`, and returns them."""
    spec = TaskSpec.load(run.output("TaskExampleGen", "examples").uri)
    measured = evaluated(run.output("Evaluator", "evaluation").uri)
    model_run = run.output("Trainer", "model_run").uri
    predictions = os.path.join(model_run, PREDICTIONS_FOLDER)
    with open(os.path.join(model_run, RESTARTS_FILE), encoding="utf-8") as file:
        restarts = json.load(file)
    search = None
    if recipe.search.enabled:
        folder = os.path.join(run_dir, SEARCH_FOLDER)
        results = run.output("Tuner", "tuner_results").uri
        search = write_search(results, recipe.search.grid, recipe.row.metrics[0], folder)
    summary = {
        "run": run.id,
        "recipe": dataclasses.asdict(recipe),
        "task": recipe.name,
        "labels": spec.task.labels,
        "rows": spec.counts,
        "rows_skipped": spec.skipped,
        # The official scores, the one that the gate judges first.
        "scores": {name: measured[name] for name in recipe.row.metrics},
        "search": search,
        "restarts": restarts,
        "predictions": {split: _files(os.path.join(predictions, split)) for split in sorted(os.listdir(predictions))},
        **outcome(run, run_dir),
    }
    write_json(os.path.join(run_dir, SUMMARY_FILE), summary)
    return summary


def print_summary(summary: Mapping[str, Any], run_dir: str) -> None:
    """One screen."""
    skipped = sum(summary["rows_skipped"].values())
    rows = ", ".join(f"{split} {count:,}" for split, count in summary["rows"].items())
    print_rows(
        {
            "task": summary["task"],
            "rows": rows + (f"; {skipped:,} bad ones left out" if skipped else ""),
            **_search_row(summary["search"], run_dir),
            **restart_rows(summary["restarts"]),
            "scores": _figures(summary["scores"]),
            **outcome_rows(summary),
            "predictions": ", ".join(os.path.relpath(p, run_dir) for of in summary["predictions"].values() for p in of),
            "report": os.path.join(run_dir, REPORT_FILE),
        }
    )


def restart_rows(report: Mapping[str, Any]) -> dict[str, str]:
    """What `bert_keras.tasks.restarts` reports, for people; nothing of one training."""
    scores, metric, chosen = report["scores"], report["metric"], [str(seed) for seed in report["chosen"]]
    if len(scores) == 1:
        return {}
    by_seed = ", ".join(f"{seed}: {of_seed[metric]:.4g}" for seed, of_seed in scores.items())
    rows = {"restarts": f"{metric} {report['mean']:.4g} ± {report['deviation']:.4g}, by seed {by_seed}"}
    if report["ensemble"]:
        rows |= {f"seed {seed}": _figures(scores[seed]) for seed in chosen}
        rows["ensemble"] = f"{_figures(report['ensemble'])}: seeds {', '.join(chosen)}"
    else:
        rows["restarts"] += f"; taken: seed {chosen[0]}"
    rows["note"] = f"the best of {len(scores)} on the rows that they are scored on: optimistic, unlike the mean"
    return rows


def _search_row(found: Mapping[str, Any] | None, run_dir: str) -> dict[str, str]:
    if found is None:
        return {}
    best, tried = found["best"], len(found["trainings"])
    values = f"batch {best[BATCH]}, learning rate {best[RATE]:g}, {best[EPOCHS]:g} epochs"
    files = ", ".join(os.path.relpath(path, run_dir) for path in found["files"])
    return {"search": f"{found['metric']} {best['score']:.4g}, the best of {tried}: {values} ({files})"}


def _figures(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in scores.items())


def _files(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
