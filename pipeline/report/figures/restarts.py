"""Scores of trainings with several seeds, as a table and a picture."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.report.figures.curves import (
    GRID,
    HELD_OUT_COLOUR,
    INK,
    REFERENCE,
    SMALL_HEIGHT,
    TRAIN_COLOUR,
    Picture,
    picture_of,
)
from pipeline.report.score_format import ScoreForm

# Maximum number of labels on the seed axis.
TICKS = 12


@dataclasses.dataclass(frozen=True)
class Restarts:
    """Scores by seed, whether it is chosen; mean and deviation of the main score."""

    titles: list[str]
    rows: list[tuple[str, bool, list[str]]]
    mean: str
    picture: Picture


def restarts(report: Mapping[str, Any], forms: Mapping[str, ScoreForm]) -> Restarts | None:
    """Table and picture of the restarts (`bert_keras.finetuning.restarts`); None for a single training.

    `forms` are those of the task's scores by name; the first is the main score.
    """
    scores = dict(sorted(report["scores"].items(), key=lambda item: int(item[0])))
    if len(scores) < 2:
        return None
    form, chosen = forms[report["metric"]], str(report["chosen"])
    rows = [(f"seed {seed}", seed == chosen, _numbers(of_seed, forms)) for seed, of_seed in scores.items()]
    mean, deviation = (math.nan if value is None else value for value in (report["mean"], report["deviation"]))
    spread = "" if math.isnan(deviation) else f" ± {form.difference(deviation).removeprefix('+')}"
    summary = f"{form.title} {form.number(mean)}{spread}"
    values = [(seed, of_seed[report["metric"]]) for seed, of_seed in scores.items()]
    missing = [seed for seed, value in values if value is None]
    summary += f" without {', '.join(f'seed {seed}' for seed in missing)}" if missing else ""
    picture = picture_of(
        lambda axes: _draw(axes, values, chosen, mean, deviation, form),
        "restarts",
        f"{form.title} by seed",
        f"{form.title} by seed: {', '.join(f'{seed} {form.number(value)}' for seed, value in values)}; mean {summary}",
        SMALL_HEIGHT,
    )
    return Restarts([of_score.title for of_score in forms.values()], rows, summary, picture)


def _numbers(scores: Mapping[str, float], forms: Mapping[str, ScoreForm]) -> list[str]:
    return [form.number(scores[name]) for name, form in forms.items()]


def _draw(
    axes: Axes,
    values: Sequence[tuple[str, float | None]],
    chosen: str,
    mean: float,
    deviation: float,
    form: ScoreForm,
) -> None:
    """Draw a dot per seed, the chosen one in the colour of held-out scores, on a band of one standard deviation."""
    if not math.isnan(mean):
        if not math.isnan(deviation):
            axes.axhspan(mean - deviation, mean + deviation, color=GRID, alpha=0.5, linewidth=0)
        axes.axhline(mean, color=REFERENCE, linewidth=1.2, linestyle=(0, (4, 3)))
    for number, (seed, value) in enumerate(values):
        if value is not None:
            colour, size = (HELD_OUT_COLOUR, 8) if seed == chosen else (TRAIN_COLOUR, 6)
            axes.plot([number], [value], "o", color=colour, markersize=size)
    every = math.ceil(len(values) / TICKS)
    axes.set_xticks(range(0, len(values), every), [seed for seed, _ in values][::every])
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.margins(y=0.25)
    axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: form.axis(value)))
    axes.set_xlabel("seed", color=INK)
