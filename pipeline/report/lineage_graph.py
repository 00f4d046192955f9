"""What made what, from ML Metadata: the boxes and arrows of the report's lineage picture."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.objective_parts import PARTS

if TYPE_CHECKING:
    from pipeline.lineage import ArtifactRecord, Run

# Pixels of the picture's own coordinate system.
BOX_HEIGHT = 84
# name: (columns' left edges, box width, rows' distance, {box: (column, row)}). A phone gets a picture of its own.
LAYOUTS: dict[str, tuple[tuple[int, ...], int, int, dict[str, tuple[int, int]]]] = {
    "wide": (
        (1, 281, 561, 841), 218, 136,
        {
            "corpus": (0, 0), "examples": (1, 0), "model": (2, 0), "pushed": (3, 0),
            "vocabulary": (0, 1), "baseline": (1, 1), "gate": (2, 1),
        },
    ),
    "narrow": (
        (1, 217), 182, 128,
        {
            "corpus": (0, 0), "vocabulary": (1, 0), "examples": (0, 1), "baseline": (1, 1),
            "model": (0, 2), "gate": (1, 2), "pushed": (0, 3),
        },
    ),
}  # fmt: skip
EDGES = (
    ("corpus", "vocabulary"), ("corpus", "examples"), ("vocabulary", "examples"), ("examples", "model"),
    ("examples", "gate"), ("model", "gate"), ("baseline", "gate"), ("model", "pushed"), ("gate", "pushed"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Node:
    """A box; `stage` made the artifact, which is None where the run has none, e.g. no baseline."""

    key: str
    title: str
    stage: str
    artifact: ArtifactRecord | None
    lines: list[str]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Boxes with their places, and arrows as SVG paths."""

    name: str
    width: int
    height: int
    box_width: int
    boxes: list[tuple[Node, int, int]]
    arrows: list[str]


def nodes(run: Run, summary: Mapping[str, Any], fingerprint: str, spec: Mapping[str, Any]) -> list[Node]:
    """The artifacts that each stage really took and gave.

    Args:
        run: of `pipeline.lineage.latest_run`.
        summary: of `summary.json`.
        fingerprint: of the text files, CorpusGen's.
        spec: the examples' `example_spec.json`.
    """
    examples, gate = (run.stages[name] for name in (run.judged_examples, "Evaluator"))
    (corpus,), (vocabulary,) = examples.inputs["documents"], examples.inputs["vocabulary"]
    (used,), (model,) = gate.inputs["examples"], gate.inputs["model"]
    baseline = next(iter(gate.inputs.get("baseline_model", [])), None)
    pushed = summary["pushed_version"]
    steps = summary["recipe"]["training"]["num_train_steps"]
    missed = len(summary["gate_failures"])
    first, *_ = PARTS[summary["objective"]]
    return [
        Node(
            "corpus", "Corpus", "CorpusGen", corpus,
            [f"{summary['corpus_documents']:,} documents", f"fingerprint {fingerprint[:8]}"],
        ),
        Node(
            "vocabulary", "Vocabulary", "VocabGen", vocabulary,
            [f"{summary['vocab_size']:,} word pieces", f"sha256 {spec['vocabulary_sha256'][:8]}"],
        ),
        Node(
            "examples", "Examples", examples.name, used,
            [f"{summary['examples_train']:,} to train", f"{summary['examples_eval']:,} held out"],
        ),
        Node(
            "model", "Model", "Trainer", model,
            [f"{steps:,} steps", f"perplexity {summary[f'{first.key}_perplexity']:,.2f}"],
        ),
        Node(
            "baseline", "Baseline", "Trainer", baseline,
            ["last blessed model", "before this one"] if baseline else ["no earlier model", "to compare with"],
        ),
        Node(
            "gate", "Gate", "Evaluator", run.output("Evaluator", "evaluation"),
            [
                "blessed" if summary["blessed"] else "not blessed",
                f"{missed or 'no'} threshold{'s' * (missed > 1)} missed",
            ],
        ),
        Node(
            "pushed", "Pushed model", "ModelPush", run.output("ModelPush", "pushed_model") if pushed else None,
            [f"version {pushed}", f"in serving/{pushed}"] if pushed else ["nothing pushed", "by this run"],
        ),
    ]  # fmt: skip


def draw(boxes: list[Node], layout: str) -> Drawing:
    """Places the boxes and draws the arrows, in the `wide` or the `narrow` layout."""
    columns, width, distance, places = LAYOUTS[layout]
    placed = {node.key: (columns[places[node.key][0]], 1 + distance * places[node.key][1]) for node in boxes}
    rows = 1 + max(row for _, row in places.values())
    return Drawing(
        name=layout,
        width=columns[-1] + width + 1,
        height=distance * (rows - 1) + BOX_HEIGHT + 2,
        box_width=width,
        boxes=[(node, *placed[node.key]) for node in boxes],
        arrows=[_arrow(placed[a], placed[b], width, sideways=layout == "wide") for a, b in EDGES],
    )


def relative(uri: str, run_dir: str) -> str:
    """An artifact's place below the run directory; of one elsewhere (the directory was moved) its last three names."""
    if os.path.commonpath([os.path.abspath(uri), os.path.abspath(run_dir)]) == os.path.abspath(run_dir):
        return os.path.relpath(uri, run_dir)
    return "/".join(["…", *uri.rstrip("/").split("/")[-3:]])


def _arrow(start: tuple[int, int], end: tuple[int, int], width: int, sideways: bool) -> str:
    """From side to side in a row, from bottom to top in a column, else a curve in the layout's direction."""
    (x, y), (to_x, to_y) = start, end
    if y == to_y or (sideways and x != to_x):
        y, to_y = y + BOX_HEIGHT // 2, to_y + BOX_HEIGHT // 2
        x, to_x = (x + width, to_x) if to_x > x else (x, to_x + width)
        middle = (x + to_x) // 2
        return f"M{x},{y} C{middle},{y} {middle},{to_y} {to_x},{to_y}"
    x, to_x = x + width // 2, to_x + width // 2
    y, to_y = (y + BOX_HEIGHT, to_y) if to_y > y else (y, to_y + BOX_HEIGHT)
    middle = (y + to_y) // 2
    return f"M{x},{y} C{x},{middle} {to_x},{middle} {to_x},{to_y}"
