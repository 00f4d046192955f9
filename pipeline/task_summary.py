"""A fine-tuning in figures: `summary.json`, and a screen for people."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert_keras.finetune import PREDICTIONS_FOLDER
from bert_keras.tasks.settings import TaskSpec
from components.shards import write_json
from pipeline.finetune_recipes import FineTuneRecipe
from pipeline.lineage import Run
from pipeline.summary import SUMMARY_FILE, evaluated, outcome, outcome_rows, print_rows


def summarize(run: Run, recipe: FineTuneRecipe, run_dir: str) -> dict[str, Any]:
    """Collects the figures of a finished run, writes `summary.json` into `run_dir`, and returns them."""
    spec = TaskSpec.load(run.output("TaskExampleGen", "examples").uri)
    measured = evaluated(run.output("Evaluator", "evaluation").uri)
    predictions = os.path.join(run.output("Trainer", "model_run").uri, PREDICTIONS_FOLDER)
    summary = {
        "run": run.id,
        "recipe": dataclasses.asdict(recipe),
        "task": recipe.name,
        "labels": spec.task.labels,
        "rows": spec.counts,
        "rows_skipped": spec.skipped,
        # The official scores, the one that the gate judges first.
        "scores": {name: measured[name] for name in recipe.row.metrics},
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
            "scores": ", ".join(f"{name} {value:.4g}" for name, value in summary["scores"].items()),
            **outcome_rows(summary),
            "predictions": ", ".join(os.path.relpath(p, run_dir) for of in summary["predictions"].values() for p in of),
        }
    )


def _files(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
