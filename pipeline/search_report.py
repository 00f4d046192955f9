"""A search in a table and in a picture: which settings were tried, and what they scored on the held-out rows."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from components.shards import write_json

# Of TFX's Tuner, in its artifact `tuner_results`: a list of {"trial_id", "score", and each value}; failed ones are out.
RESULTS_FILE = "tuner_results.json"
BATCH, RATE, EPOCHS = "train_batch_size", "learning_rate", "num_train_epochs"
# Inches a cell of the picture.
CELL_WIDTH, CELL_HEIGHT = 0.8, 0.5

Grid = Mapping[str, Sequence[float]]


def write_search(results_dir: str, grid: Grid, metric: str, folder: str) -> dict[str, Any]:
    """Writes `grid.json`, `grid.md` and `grid.svg`, and returns what the summary says.

    Args:
        results_dir: of the artifact `tuner_results`.
        grid: of `SearchSettings.grid`.
        metric: the score by which trainings were judged.
        folder: where the files go.

    Returns:
        Dict with `metric`; `trainings`, a dict each of its values and `score`, None where there is none (it diverged,
        or all its answers are alike and the score is a correlation); `best`, one of them; `files`, the paths.
    """
    with open(os.path.join(results_dir, RESULTS_FILE), encoding="utf-8") as file:
        scores = {tuple(found[name] for name in grid): found["score"] for found in json.load(file)}
    trainings = [
        {**dict(zip(grid, values, strict=True)), "score": scores.get(values)}
        for values in itertools.product(*grid.values())
    ]
    # The first of equals, as KerasTuner's.
    best = max(trainings, key=lambda training: -math.inf if training["score"] is None else training["score"])
    files = [os.path.join(folder, name) for name in ("grid.json", "grid.md", "grid.svg")]
    found = {"metric": metric, "trainings": trainings, "best": best}
    write_json(files[0], found)
    for path, text in zip(files[1:], (table(found, grid), picture(found, grid)), strict=True):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return {**found, "files": files}


def table(found: Mapping[str, Any], grid: Grid) -> str:
    """Markdown: batch and learning rate down, epochs across, the best in bold.

    | batch | learning rate | 2 epochs | 3 epochs |
    |---|---|---|---|
    | 16 | 5e-05 | 0.9 | **0.92** |
    """
    header = ["batch", "learning rate", *(f"{epochs:g} epochs" for epochs in grid[EPOCHS])]
    lines = [header, ["---"] * len(header)]
    for batch, rate in itertools.product(grid[BATCH], grid[RATE]):
        cells = [_training(found, batch, rate, epochs) for epochs in grid[EPOCHS]]
        marked = (f"**{_text(cell)}**" if cell == found["best"] else _text(cell) for cell in cells)
        lines.append([str(batch), f"{rate:g}", *marked])
    rows = ("| " + " | ".join(line) + " |\n" for line in lines)
    return f"{_title(found)}\n\n" + "".join(rows)


def picture(found: Mapping[str, Any], grid: Grid) -> str:
    """An SVG: a map a batch size, learning rates across, epochs up, the darker the better, the best framed."""
    batches, rates, epochs = grid[BATCH], grid[RATE], grid[EPOCHS]
    scores = [training["score"] for training in found["trainings"] if training["score"] is not None]
    size = (CELL_WIDTH * len(rates) * len(batches) + 1.6, CELL_HEIGHT * len(epochs) + 1.2)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "search", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(batches), sharey=True, squeeze=False)[0]
        for axes, batch in zip(panels, batches, strict=True):
            cells = [[_training(found, batch, rate, epoch) for rate in rates] for epoch in epochs]
            _draw(axes, cells, found["best"], min(scores), max(scores))
            axes.set_title(f"batch {batch}", fontsize=9)
            axes.set_xticks([i + 0.5 for i in range(len(rates))], [f"{rate:g}" for rate in rates])
            axes.set_yticks([i + 0.5 for i in range(len(epochs))], [f"{epoch:g}" for epoch in epochs])
        panels[0].set_ylabel("epochs")
        figure.supxlabel("learning rate", fontsize=9)
        figure.suptitle(_title(found), fontsize=10)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return written.getvalue()


def _draw(axes: Axes, cells: Sequence[Sequence[Any]], best: Any, worst_score: float, best_score: float) -> None:
    values = [[math.nan if cell["score"] is None else cell["score"] for cell in row] for row in cells]
    axes.pcolormesh(values, cmap="Blues", vmin=worst_score, vmax=best_score, edgecolors="white")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    middle = worst_score + 0.6 * (best_score - worst_score)
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            dark = cell["score"] is not None and cell["score"] > middle
            axes.text(x + 0.5, y + 0.5, _text(cell), ha="center", va="center", color="white" if dark else "black")
            if cell == best:
                frame = [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1), (x, y)]
                axes.plot(*zip(*frame, strict=True), color="black", linewidth=2, clip_on=False)


def _training(found: Mapping[str, Any], batch: float, rate: float, epochs: float) -> dict[str, Any]:
    asked = {BATCH: batch, RATE: rate, EPOCHS: epochs}
    return next(training for training in found["trainings"] if asked.items() <= training.items())


def _text(training: Mapping[str, Any]) -> str:
    return "no score" if training["score"] is None else f"{training['score']:.4g}"


def _title(found: Mapping[str, Any]) -> str:
    return f"{found['metric']} on the held-out rows"
