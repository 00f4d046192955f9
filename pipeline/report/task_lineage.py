"""The lineage of a fine-tuning."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.report.lineage_graph import Layout, Lineage, Node, draw, places
from pipeline.report.outcome_nodes import baseline_node, gate_node, pushed_node

if TYPE_CHECKING:
    from pipeline.lineage import Run
    from pipeline.report.score_forms import ScoreForm

LAYOUTS = (
    Layout(
        "wide", (1, 421, 841), 218, 136,
        {
            "start": (0, 0), "model": (1, 0), "pushed": (2, 0), "rows": (0, 1), "gate": (1, 1), "baseline": (2, 1),
        },
    ),
    Layout(
        "narrow", (1, 217), 182, 128,
        {
            "start": (0, 0), "rows": (1, 0), "model": (0, 1), "gate": (1, 1), "pushed": (0, 2), "baseline": (1, 2),
        },
    ),
)  # fmt: skip
# No arrow of the wide one runs behind a box.
LAYOUTS_WITH_SEARCH = (
    Layout(
        "wide", (1, 281, 561, 841), 218, 116,
        {
            "search": (1, 0), "start": (0, 1), "model": (2, 1), "pushed": (3, 1),
            "rows": (0, 2), "gate": (2, 2), "baseline": (3, 2),
        },
    ),
    Layout(
        "narrow", (1, 217), 182, 128,
        {
            "start": (0, 0), "rows": (1, 0), "search": (0, 1), "model": (0, 2), "gate": (1, 2),
            "pushed": (0, 3), "baseline": (1, 3),
        },
    ),
)  # fmt: skip
EDGES = (
    ("start", "model"), ("rows", "model"), ("rows", "gate"), ("model", "gate"), ("baseline", "gate"),
    ("model", "pushed"), ("gate", "pushed"),
)  # fmt: skip
EDGES_WITH_SEARCH = (("start", "search"), ("rows", "search"), ("search", "model"), *EDGES)
DESCRIPTION = "first model and rows to model, model, rows and baseline to gate, gate and model to pushed model"


def task_lineage(run: Run, summary: Mapping[str, Any], form: ScoreForm, steps: int, run_dir: str) -> Lineage:
    """The artifacts that each stage really took and gave, and the model that it began with.

    Args:
        run: of `pipeline.lineage.latest_run`.
        summary: of `summary.json`.
        form: of the task's first score.
        steps: of the training.
        run_dir: no path above it is shown.
    """
    trainer, fingerprint = run.stages["Trainer"], str(run.stages["TaskExampleGen"].properties["fingerprint"])
    began = json.loads(str(trainer.properties["custom_config"]))
    boxes = _nodes(run, summary, form, steps, began)
    searched = summary["search"] is not None
    layouts, edges = (LAYOUTS_WITH_SEARCH, EDGES_WITH_SEARCH) if searched else (LAYOUTS, EDGES)
    hashes = {
        "Fingerprint of the task's files, their names and contents": fingerprint,
        "Fingerprint of the first model's files": began["init_fingerprint"],
    }
    drawings = [draw(boxes, layout, edges) for layout in layouts]
    description = f"first model and rows to search, search, {DESCRIPTION}" if searched else DESCRIPTION
    return Lineage(drawings, places(boxes, run_dir), description, hashes)


def _nodes(run: Run, summary: Mapping[str, Any], form: ScoreForm, steps: int, began: Mapping[str, Any]) -> list[Node]:
    gate, restarts, found = run.stages["Evaluator"], summary["restarts"], summary["search"]
    (rows,), (model,) = gate.inputs["examples"], gate.inputs["model"]
    metric, together = restarts["metric"], len(restarts["chosen"])
    # As much as a box is wide: Spearman 0.871
    score = f"{form.title.partition(' ')[0]} {form.number(summary['scores'][metric])}"
    trained = f"{steps:,} steps" if together == 1 else f"{together} of {steps:,} steps each"
    nodes = [
        # A folder may be called anything: `model`, or a pushed one's version.
        Node(
            "start", "First model", "", None,
            [_short(os.path.basename(began["init"].rstrip("/"))), f"fingerprint {began['init_fingerprint'][:8]}"],
            outside=True,
        ),
        Node(
            "rows", "Rows", "TaskExampleGen", rows,
            [f"{summary['rows']['train']:,} to train", f"{summary['rows']['eval']:,} held out"],
        ),
        Node("model", "Model" if together == 1 else "Models", "Trainer", model, [trained, score]),
        baseline_node(run),
        gate_node(run, summary),
        pushed_node(run, summary),
    ]  # fmt: skip
    if found is None:
        return nodes
    best = form.number(found["best"]["score"])
    lines = [f"{len(found['trainings'])} trainings", f"the best {best}"]
    return [*nodes[:2], Node("search", "Search", "Tuner", run.output("Tuner", "tuner_results"), lines), *nodes[2:]]


def _short(name: str) -> str:
    """As much as a box is wide.

    >>> _short("sentence-transformers-all-MiniLM")
    'sentence-transforme…'
    """
    return name if len(name) <= 20 else name[:19] + "…"
