"""Table and picture of a hyper-parameter search: settings, and their scores on the held-out rows."""

from __future__ import annotations

import io
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from components.io.shards import read_json, write_json

# TFX's Tuner writes it to `tuner_results`: a list of {"trial_id", "score", and each value}, without failed trials.
RESULTS_FILE = "tuner_results.json"
BATCH, RATE, EPOCHS = "train_batch_size", "learning_rate", "num_train_epochs"
# Inches per cell of the picture.
CELL_WIDTH, CELL_HEIGHT = 0.8, 0.5

Grid = Mapping[str, Sequence[float]]


def write_search(results_dir: str, grid: Grid, metric: str, folder: str) -> dict[str, Any]:
    """Write `grid.json`, `grid.md` and `grid.svg`; return the summary's entry.

    Args:
        results_dir: folder of the artifact `tuner_results`.
        grid: `SearchSettings.grid`.
        metric: the score that ranks the trainings.
        folder: output folder.

    Returns:
        Dict with `metric`; `trainings`, a dict each of its values and `score`, None without a score (it diverged, or
        all its answers are equal and the score is a correlation); `best`, one of them; `files`, the paths.
    """
    trials = read_json(os.path.join(results_dir, RESULTS_FILE))
    scores = {tuple(trial[name] for name in grid): trial["score"] for trial in trials}
    trainings = [
        {**dict(zip(grid, values, strict=True)), "score": scores.get(values)}
        for values in itertools.product(*grid.values())
    ]
    # Of equal scores the first, as in KerasTuner.
    best = max(trainings, key=lambda training: -math.inf if training["score"] is None else training["score"])
    files = [os.path.join(folder, name) for name in ("grid.json", "grid.md", "grid.svg")]
    search = {"metric": metric, "trainings": trainings, "best": best}
    write_json(files[0], search)
    for path, text in zip(files[1:], (table(search, grid), picture(search, grid)), strict=True):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return {**search, "files": files}


def table(search: Mapping[str, Any], grid: Grid) -> str:
    """A Markdown table: batch and learning rate down, epochs across, the best in bold.

    | batch | learning rate | 2 epochs | 3 epochs |
    |---|---|---|---|
    | 16 | 5e-05 | 0.9 | **0.92** |
    """
    header = ["batch", "learning rate", *(f"{epochs:g} epochs" for epochs in grid[EPOCHS])]
    lines = [header, ["---"] * len(header)]
    for batch, rate in itertools.product(grid[BATCH], grid[RATE]):
        cells = [_training(search, batch, rate, epochs) for epochs in grid[EPOCHS]]
        marked = (f"**{_text(cell)}**" if cell == search["best"] else _text(cell) for cell in cells)
        lines.append([str(batch), f"{rate:g}", *marked])
    rows = ("| " + " | ".join(line) + " |\n" for line in lines)
    return f"{_title(search)}\n\n" + "".join(rows)


def picture(search: Mapping[str, Any], grid: Grid) -> str:
    """An SVG: one map per batch size, learning rates across, epochs up; darker is better, the best is framed."""
    batches, rates, epochs = grid[BATCH], grid[RATE], grid[EPOCHS]
    scores = [training["score"] for training in search["trainings"] if training["score"] is not None]
    size = (CELL_WIDTH * len(rates) * len(batches) + 1.6, CELL_HEIGHT * len(epochs) + 1.2)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "search", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(batches), sharey=True, squeeze=False)[0]
        for axes, batch in zip(panels, batches, strict=True):
            cells = [[_training(search, batch, rate, epoch) for rate in rates] for epoch in epochs]
            _draw(axes, cells, search["best"], min(scores), max(scores))
            axes.set_title(f"batch {batch}", fontsize=9)
            axes.set_xticks([i + 0.5 for i in range(len(rates))], [f"{rate:g}" for rate in rates])
            axes.set_yticks([i + 0.5 for i in range(len(epochs))], [f"{epoch:g}" for epoch in epochs])
        panels[0].set_ylabel("epochs")
        figure.supxlabel("learning rate", fontsize=9)
        figure.suptitle(_title(search), fontsize=10)
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


def _training(search: Mapping[str, Any], batch: float, rate: float, epochs: float) -> dict[str, Any]:
    values = {BATCH: batch, RATE: rate, EPOCHS: epochs}
    return next(training for training in search["trainings"] if values.items() <= training.items())


def _text(training: Mapping[str, Any]) -> str:
    return "no score" if training["score"] is None else f"{training['score']:.4g}"


def _title(search: Mapping[str, Any]) -> str:
    return f"{search['metric']} on the held-out rows"
