"""Summary of a run: `summary.json`, and one screen."""

import dataclasses
import importlib.metadata
import os
import platform
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from components.evaluator.results import chances, evaluated_by_slice, gate_failures, intervals
from components.io.shards import read_json, write_json
from components.serving_validator.component import VERDICT_FILE
from pipeline import stages
from pipeline.recipes.settings import Recipe
from pipeline.runs.lineage import Run, notices_of
from pipeline.runs.request import PRETRAIN
from pipeline.runs.run_dir import REPORT_FILE, SUMMARY_FILE, serving_dir
from pipeline.runs.served_versions import served_version
from pipeline.runs.spec import RunSpec
from pipeline.summaries import pretrain, task
from pipeline.summaries.gate_failures import advice, reasons

# With more labels or sources, only the file and the page list the slices.
_MOST_SLICES = 10


def summarize(run: Run, spec: RunSpec, run_dir: str) -> dict[str, Any]:
    """Collect the figures of a finished run, write them to `summary.json` in `run_dir`, and return them."""
    recipe, initial = spec.recipe, spec.inputs.initial_model
    figures = (
        pretrain.figures(run, recipe, initial) if isinstance(recipe, Recipe) else task.figures(run, recipe, initial)
    )
    summary = {
        "run": run.id,
        "workflow": recipe.workflow,
        "fingerprints": spec.inputs.fingerprints,
        **figures,
        **outcome(run, run_dir),
    }
    write_json(os.path.join(run_dir, SUMMARY_FILE), summary)
    return summary


def print_summary(summary: Mapping[str, Any], run_dir: str) -> None:
    """Print the summary on one screen."""
    rows = pretrain.rows(summary) if summary["workflow"] == PRETRAIN.name else task.rows(summary, run_dir)
    print_rows({**rows, **outcome_rows(summary), "report": os.path.join(run_dir, REPORT_FILE)})


def print_rows(rows: Mapping[str, str]) -> None:
    """Print one line per row, at any terminal width, so that paths can be copied."""
    console, width = Console(highlight=False, soft_wrap=True), max(map(len, rows))
    for name, text in rows.items():
        console.print(Text.assemble("  ", (f"{name:{width}}", "bold"), "    ", text))


def outcome(run: Run, run_dir: str) -> dict[str, Any]:
    """Results of both gates, the served version, and the time of each stage.

    `gate_failures` lists the missed thresholds of quality (`components.evaluator.gate_failures`), `serving` the
    problems found by the ServingValidator.
    """
    evaluation = run.output(stages.EVALUATOR, stages.EVALUATION).uri
    pushed = run.output(stages.MODEL_PUSH, stages.PUSHED_MODEL).properties
    serving = read_json(os.path.join(run.output(stages.SERVING_VALIDATOR, stages.BLESSING).uri, VERDICT_FILE))
    served = served_version(serving_dir(run_dir))
    return {
        # The ServingValidator only tests models that pass the quality gate.
        "blessed": serving["blessed"],
        "gate_failures": [dataclasses.asdict(failure) for failure in gate_failures(evaluation)],
        "intervals": intervals(evaluation),
        "chances": chances(evaluation),
        "slices": evaluated_by_slice(evaluation),
        "serving": serving,
        "pushed_version": pushed.get("pushed_version"),
        "served_version": None if served is None else str(served),
        "seconds_by_stage": {name: stage.seconds for name, stage in run.stages.items()},
        "stage_states": {name: stage.state for name, stage in run.stages.items()},
        "versions": versions(),
        "notices": notices_of(run, run_dir),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the main packages."""
    packages = ("bert-tfx", "tfx", "tensorflow", "keras", "apache-beam", "tensorflow-text", "tokenizers")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def outcome_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """The rows of `outcome` on the screen: only the slow stages have their seconds."""
    rows = {"gate": "blessed"}
    if not summary["blessed"]:
        rows = {"gate": "NOT blessed: " + "; ".join(reasons(summary)), "to try": "; ".join(advice(summary))}
    if summary["intervals"]:
        intervals = (f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in summary["intervals"].items())
        rows["95% CI"] = ", ".join(intervals)
    counts = Counter(part["by"] for part in summary["slices"])
    for part in (part for part in summary["slices"] if counts[part["by"]] <= _MOST_SLICES):
        metrics = part["metrics"]
        scores = ", ".join(f"{name} {metrics[name]:.4g}" for name in metrics if name != "example_count")
        rows[f"{part['by']} {part['of']}"] = f"{scores} ({metrics['example_count']:,.0f} rows)"
    verdict = summary["serving"]
    if verdict["answers"]:  # it came to measure
        name, slowest = max(verdict["latency_ms"].items(), key=lambda item: item[1])
        answers = f"{verdict['answers']} answers{' as trained' if verdict['blessed'] else ''}"
        memory = f"{verdict['memory_mb']:.0f} MiB; loaded in {verdict['load_seconds']:.1f} s"
        rows["serving"] = f"{answers}, 95 % within {slowest:.3g} ms ({name}); {memory}"
    pushed = f"version {summary['pushed_version']}" if summary["pushed_version"] else "nothing"
    rows["pushed"] = f"{pushed}; serving {summary['served_version'] or 'nothing'}"
    states, seconds = summary["stage_states"], summary["seconds_by_stage"]
    cached = sum(state == "CACHED" for state in states.values())
    slow = [f"{name} {seconds[name]:.0f} s" for name in states if seconds[name] >= 1 and states[name] != "CACHED"]
    rows["stages"] = ", ".join(slow + ([f"{cached} of {len(states)} cached"] if cached else []))
    return rows | {f"notice {number}": notice for number, notice in enumerate(summary["notices"], 1)}
