"""Sections of every page: verdict, curves, gate, seconds by stage, artifacts, settings."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import jinja2

from pipeline import stages
from pipeline.report import gate
from pipeline.report.figures.curves import Picture
from pipeline.report.figures.tables import Table
from pipeline.runs.lineage import Run
from pipeline.runs.run_dir import model_name


@dataclasses.dataclass(frozen=True)
class Frame:
    """Content of the sections that all pages have.

    `judged_on` says on which data; `reference` is the legend of the curves' dashed line, "" without one;
    `settings_note` stands below the versions, and `fingerprints` beside those of `summary.json`.
    """

    gate_rows: list[gate.GateRow]
    judged_on: str
    pictures: list[Picture]
    evaluations: Table  # of the held-out rows, by step
    slices: Table
    reference: str = ""
    settings_note: str = ""
    fingerprints: dict[str, str] = dataclasses.field(default_factory=dict)


def render(template: str, run: Run, summary: Mapping[str, Any], run_dir: str, frame: Frame, **sections: Any) -> str:
    """Render the page's HTML from a template that extends `page.html`; `sections` are the variables of its own."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.join(os.path.dirname(__file__), "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": "{:,}".format, "percent": percent, "seconds": _seconds}
    environment.filters["megabytes"] = lambda size: f"{size / 1e6:,.2f} MB"
    longest = max((stage.seconds for stage in run.stages.values()), default=0) or 1
    return environment.get_template(template).render(
        summary=summary,
        frame=frame,
        verdict=gate.verdict(summary),
        stages=[
            {"name": s.name, "seconds": s.seconds, "share": s.seconds / longest, "state": s.state.lower()}
            for s in run.stages.values()
        ],
        artifacts=_artifacts(run, run_dir),
        fingerprints=summary["fingerprints"] | frame.fingerprints,
        settings=_flat(summary["recipe"]),
        **sections,
    )


def load(directory: str, name: str) -> Any:
    """Read a JSON file."""
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def baseline_metrics(run: Run) -> dict[str, float] | None:
    """Metrics of the baseline model on the held-out data; None without a baseline."""
    if not run.stages[stages.EVALUATOR].inputs.get(stages.BASELINE_MODEL):
        return None
    from components.evaluator.results import BASELINE, evaluated

    return evaluated(run.output(stages.EVALUATOR, stages.EVALUATION).uri, BASELINE)


def percent(share: float, digits: int = 1) -> str:
    """Format a share: 0.5 -> 50.0%."""
    return f"{100 * share:.{digits}f}%"


def _artifacts(run: Run, run_dir: str) -> list[dict[str, Any]]:
    """Every artifact of the run: those that its stages made, then those of earlier runs that they read."""
    rows: dict[int, dict[str, Any]] = {}
    for stage in run.stages.values():
        read = ", ".join(f"{key} {artifact.id}" for key, values in stage.inputs.items() for artifact in values)
        for key, artifact in ((key, artifact) for key, values in stage.outputs.items() for artifact in values):
            rows.setdefault(artifact.id, {"artifact": artifact, "key": key, "stage": stage.name, "read": read})
    for stage in run.stages.values():
        for key, artifact in ((key, artifact) for key, values in stage.inputs.items() for artifact in values):
            rows.setdefault(artifact.id, {"artifact": artifact, "key": key, "stage": "an earlier run", "read": ""})
    return [{**row, "place": _place(row["artifact"].uri, run_dir)} for row in rows.values()]


def _place(uri: str, run_dir: str) -> str:
    """A path below the run directory; of another run, or after a move, its last three parts; of a model, its name."""
    run_dir = os.path.abspath(run_dir)
    if os.path.commonpath([os.path.abspath(uri), run_dir]) == run_dir:
        return os.path.relpath(uri, run_dir)
    parts = uri.rstrip("/").split("/")
    return "/".join(["…", *parts[-3:]]) if "artifacts" in parts else model_name(uri)


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values of all settings, in the form of `--set`."""
    rows: list[tuple[str, Any]] = []
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, ",".join(map(str, value)) if isinstance(value, list) else value))
    return rows


def _seconds(seconds: float) -> str:
    """Format seconds: 0.03 s, 12.3 s, 4 min 05 s."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{int(seconds + 0.5) // 60} min {int(seconds + 0.5) % 60:02d} s"
