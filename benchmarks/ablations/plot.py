"""An experiment's figures as a picture (SVG): differences from the first arm, or lines."""

from __future__ import annotations

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.ablations.experiment import AblationExperiment, Column
from benchmarks.ablations.runner import Figures
from benchmarks.ablations.significance import Summary

PANEL_WIDTH, ROW_HEIGHT, LINES_HEIGHT = 2.6, 0.32, 3.2  # inches
OURS, PAPER = "tab:blue", "tab:orange"


def draw(experiment: AblationExperiment, figures: Figures, path: str) -> None:
    """Write the picture; equal figures give equal bytes.

    An experiment with an `x_label` has a panel per task and a line per arm. Others have a panel per column: each arm's
    mean minus the first arm's, ours and the paper's. Bars are the standard deviation over the seeds.
    """
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": experiment.name, "font.size": 8}):
        figure = _lines(experiment, figures) if experiment.x_label else _differences(experiment, figures)
        figure.savefig(path, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


def _panels(count: int, height: float, left: float = 0.0) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(left + PANEL_WIDTH * max(1, count), height), layout="constrained")
    return figure, list(figure.subplots(1, max(1, count), squeeze=False)[0])


def _summary(figures: Figures, arm: str, column: Column) -> Summary | None:
    values = figures.get((arm, column.header))
    return Summary.of(values) if values else None


def _differences(experiment: AblationExperiment, figures: Figures) -> Figure:
    first = experiment.arms[0].name
    columns = [column for column in experiment.columns if _summary(figures, first, column)]
    arms = experiment.arms
    figure, panels = _panels(len(columns), 1.1 + ROW_HEIGHT * len(arms), left=1.2)
    for column, axes in zip(columns, panels, strict=False):
        baseline = _summary(figures, first, column)
        assert baseline
        for row, arm in enumerate(arms):
            if ours := _summary(figures, arm.name, column):
                difference, error = ours.mean - baseline.mean, ours.deviation or 0
                axes.errorbar(difference, row, xerr=error, fmt="o", markersize=4, capsize=2, color=OURS)
            if column.header in arm.paper and column.header in arms[0].paper:
                axes.plot(arm.paper[column.header] - arms[0].paper[column.header], row, "D", mfc="none", color=PAPER)
        axes.axvline(0, color="0.8", zorder=0)
        axes.set(title=column.header, ylim=(len(arms) - 0.5, -0.5), xlabel=f"minus {first}")
        axes.set_yticks(range(len(arms)), [arm.name for arm in arms] if axes is panels[0] else [])
    panels[0].plot([], [], "o", color=OURS, label="ours")
    panels[0].plot([], [], "D", mfc="none", color=PAPER, label="the paper's")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _lines(experiment: AblationExperiment, figures: Figures) -> Figure:
    columns = [column for column in experiment.columns if _summary(figures, experiment.arms[0].name, column)]
    tasks = list(dict.fromkeys(column.task for column in columns))
    figure, panels = _panels(len(tasks), LINES_HEIGHT)
    for task, axes in zip(tasks, panels, strict=False):
        of_task = [column for column in columns if column.task == task]
        for arm in experiment.arms:
            points = [
                (column.x, ours.mean, ours.deviation or 0)
                for column in of_task
                if (ours := _summary(figures, arm.name, column))
            ]
            if points:
                x, means, deviations = zip(*points, strict=True)
                axes.errorbar(x, means, yerr=deviations, marker="o", markersize=4, capsize=2, label=arm.name)
        axes.set(title=f"{task}, {of_task[0].metric.replace('_', ' ')}", xlabel=experiment.x_label)
        axes.legend(frameon=False)
    return figure
