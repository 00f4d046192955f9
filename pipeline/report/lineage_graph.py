"""What made what, from ML Metadata: the boxes and arrows of a report's lineage picture, and where the artifacts lie."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.lineage import ArtifactRecord

# Pixels of the picture's own coordinate system.
BOX_HEIGHT = 84
Edges = Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Node:
    """A box.

    Attributes:
        key: its name in layouts and edges.
        title: its name for people.
        stage: which made the artifact.
        artifact: None where the run has none, e.g. no baseline.
        lines: what else is said of it.
        outside: whether it is no artifact at all, but what the run was given.
    """

    key: str
    title: str
    stage: str
    artifact: ArtifactRecord | None
    lines: list[str]
    outside: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where boxes stand; a phone gets a picture of its own.

    Attributes:
        name: `wide` or `narrow`.
        columns: their left edges.
        box_width: of all boxes.
        distance: from one row to the next.
        places: column and row of each box, by key.
    """

    name: str
    columns: tuple[int, ...]
    box_width: int
    distance: int
    places: dict[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Boxes with their places, and arrows as SVG paths."""

    name: str
    width: int
    height: int
    box_width: int
    boxes: list[tuple[Node, int, int]]
    arrows: list[str]


@dataclasses.dataclass(frozen=True)
class Lineage:
    """What the page shows of it.

    Attributes:
        drawings: one a layout.
        artifacts: with their places.
        description: the picture in words.
        hashes: by what they are of.
    """

    drawings: list[Drawing]
    artifacts: list[tuple[Node, str]]
    description: str
    hashes: dict[str, str]


def draw(boxes: Sequence[Node], layout: Layout, edges: Edges) -> Drawing:
    """Places the boxes and draws the arrows."""
    width = layout.box_width
    placed = {}
    for node in boxes:
        column, row = layout.places[node.key]
        placed[node.key] = (layout.columns[column], 1 + layout.distance * row)
    rows = 1 + max(row for _, row in layout.places.values())
    return Drawing(
        name=layout.name,
        width=layout.columns[-1] + width + 1,
        height=layout.distance * (rows - 1) + BOX_HEIGHT + 2,
        box_width=width,
        boxes=[(node, *placed[node.key]) for node in boxes],
        arrows=[_arrow(placed[a], placed[b], width, sideways=layout.name == "wide") for a, b in edges],
    )


def places(boxes: Sequence[Node], run_dir: str) -> list[tuple[Node, str]]:
    """The artifacts and where they lie."""
    return [(node, relative(node.artifact.uri, run_dir)) for node in boxes if node.artifact]


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
