"""What every page has: verdict, curves, gate, seconds of the stages, lineage, settings."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jinja2

from pipeline.report import gate
from pipeline.report.curves import Picture
from pipeline.report.lineage_graph import BOX_HEIGHT, Lineage
from pipeline.report.slice_table import SliceTable

if TYPE_CHECKING:
    from pipeline.lineage import Run


@dataclasses.dataclass(frozen=True)
class Evaluations:
    """The held-out evaluations of a training as numbers; the first column is the step."""

    caption: str
    titles: list[str]
    rows: list[list[str]]


@dataclasses.dataclass(frozen=True)
class Frame:
    """What the parts that all pages have are made of.

    Attributes:
        gate_rows: every threshold.
        judged_on: what the gate measured on, for people.
        pictures: the curves.
        evaluations: the same in numbers.
        reference: what the dashed line of the curves is; empty: there is none.
        lineage: what made what.
        slices: what was measured of parts of the held-out split.
        settings_note: below the versions; may be empty.
    """

    gate_rows: list[gate.GateRow]
    judged_on: str
    pictures: list[Picture]
    evaluations: Evaluations
    lineage: Lineage
    slices: SliceTable
    reference: str = ""
    settings_note: str = ""


def render(template: str, run: Run, summary: Mapping[str, Any], frame: Frame, **own: Any) -> str:
    """The page's HTML.

    Args:
        template: which extends `page.html`.
        run: of `pipeline.lineage.latest_run`.
        summary: of `summary.json`.
        frame: the parts that all pages have.
        own: what the template's own parts are made of.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(__file__)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda n: f"{n:,}",
        "percent": percent,
        "seconds": _seconds,
        "megabytes": _megabytes,
    }
    return environment.get_template(template).render(
        summary=summary,
        frame=frame,
        verdict=gate.verdict(summary, frame.gate_rows),
        stages=_stages(run),
        box_height=BOX_HEIGHT,
        settings=_flat(summary["recipe"]),
        **own,
    )


def load(directory: str, name: str) -> Any:
    """A JSON file."""
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def baseline_metrics(run: Run) -> dict[str, float] | None:
    """What the gate measured of the last blessed model, if it had one to compare with."""
    if not run.stages["Evaluator"].inputs.get("baseline_model"):
        return None
    from components.evaluator.results import BASELINE, evaluated

    return evaluated(run.output("Evaluator", "evaluation").uri, BASELINE)


def percent(share: float, digits: int = 1) -> str:
    """0.5 -> 50.0%"""
    return f"{100 * share:.{digits}f}%"


def _stages(run: Run) -> list[dict[str, Any]]:
    longest = max((stage.seconds for stage in run.stages.values()), default=0) or 1
    return [
        {"name": s.name, "seconds": s.seconds, "share": s.seconds / longest, "state": s.state.lower()}
        for s in run.stages.values()
    ]


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values, as `--set` takes them."""
    rows: list[tuple[str, Any]] = []
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, _listed(value) if isinstance(value, Sequence) else value))
    return rows


def _listed(value: Sequence[Any]) -> str:
    return value if isinstance(value, str) else ",".join(map(str, value))


def _seconds(seconds: float) -> str:
    """0.03 s, 12.3 s, 4 min 05 s"""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{int(seconds + 0.5) // 60} min {int(seconds + 0.5) % 60:02d} s"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.2f} MB"
