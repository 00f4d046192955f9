"""The boxes in which every pipeline's lineage ends (`pipeline.judge_and_push`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.report.lineage_graph import Node

if TYPE_CHECKING:
    from pipeline.lineage import Run


def baseline_node(run: Run) -> Node:
    """The model that the gate compared with."""
    baseline = next(iter(run.stages["Evaluator"].inputs.get("baseline_model", [])), None)
    lines = ["last blessed model", "before this one"] if baseline else ["no earlier model", "to compare with"]
    return Node("baseline", "Baseline", "Trainer", baseline, lines)


def gate_node(run: Run, summary: Mapping[str, Any]) -> Node:
    """What it decided."""
    missed = len(summary["gate_failures"])
    lines = [
        "blessed" if summary["blessed"] else "not blessed",
        f"{missed or 'no'} threshold{'s' * (missed > 1)} missed",
    ]
    return Node("gate", "Gate", "Evaluator", run.output("Evaluator", "evaluation"), lines)


def pushed_node(run: Run, summary: Mapping[str, Any]) -> Node:
    """What is in the serving folder by this run."""
    pushed = summary["pushed_version"]
    artifact = run.output("ModelPush", "pushed_model") if pushed else None
    lines = [f"version {pushed}", f"in serving/{pushed}"] if pushed else ["nothing pushed", "by this run"]
    return Node("pushed", "Pushed model", "ModelPush", artifact, lines)
