"""Curves of the training log: SVG inside the page, coloured by the page's CSS variables."""

import io
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bert_keras.objectives.table import PARTS

LOG_FILE = "log.jsonl"
TRAIN, HELD_OUT = "train", "eval"
# matplotlib needs colours, the page has CSS variables (light and dark): placeholders, replaced in the SVG.
INK, GRID, REFERENCE, TRAIN_COLOUR, HELD_OUT_COLOUR = "#0000f1", "#0000f2", "#0000f3", "#0000f4", "#0000f5"
VARIABLES = {
    INK: "var(--soft)",
    GRID: "var(--line)",
    REFERENCE: "var(--reference)",
    TRAIN_COLOUR: "var(--train)",
    HELD_OUT_COLOUR: "var(--held-out)",
}
# Inches of 72 points; the page scales a picture to 340 px on a phone and to 560 px on a screen.
WIDTH, HEIGHT, SMALL_HEIGHT = 4.4, 2.5, 1.6
FONT_POINTS = 8
# Maximum number of points of a curve: a longer log is averaged, to bound the size of a page.
MAX_POINTS = 300

Log = list[dict[str, Any]]
plain = "{:.3g}".format


class Picture(NamedTuple):
    """The content of an SVG element, with its `view_box` and a description for screen readers."""

    title: str
    description: str
    view_box: str
    svg: Markup


class Curve(NamedTuple):
    """A field of the log to draw, with an optional horizontal reference line."""

    key: str
    title: str
    number: Callable[[float], str]
    reference: float | None = None
    reference_label: str = ""
    height: float = HEIGHT


def read_log(model_run: str) -> Log:
    """Read `log.jsonl` of the Trainer's `model_run` artifact, ordered by step.

    Lines of the same step and kind are merged: a resumed training repeats steps, and a fine-tuning adds its official
    scores.
    """
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    with open(os.path.join(model_run, LOG_FILE), encoding="utf-8") as file:
        for line in map(json.loads, file):
            merged.setdefault((line["kind"], line["step"]), {}).update(line)
    return sorted(merged.values(), key=lambda line: line["step"])


def pictures(log: Log, curves: Sequence[Curve]) -> list[Picture]:
    """The given curves, the learning rate and the throughput."""
    rate = Curve("learning_rate", "Learning rate", plain, height=SMALL_HEIGHT)
    throughput = Curve("tokens_per_second", "Tokens per second", lambda n: f"{n / 1000:,.3g}k", height=SMALL_HEIGHT)
    return [_picture(curve, log) for curve in (*curves, rate, throughput)]


def of_objective(summary: Mapping[str, Any]) -> list[Curve]:
    """Losses and accuracies of a pre-training; reference lines show what is reached without reading the text."""
    curves = []
    for part in PARTS[summary["objective"]]:
        loss = Curve(f"{part.key}_loss", f"{part.title} loss", plain)
        accuracy = Curve(f"{part.key}_accuracy", f"{part.title} accuracy", percent)
        if "perplexity" in part.metrics:
            loss = loss._replace(reference=math.log(summary["unigram_perplexity"]), reference_label="unigram model")
        if part.guesses == 2:
            chance, _ = summary["chances"][f"{part.key}_accuracy"]
            loss = loss._replace(reference=_entropy(chance), reference_label="knowing only the shares")
            accuracy = accuracy._replace(reference=chance, reference_label="chance")
        curves += [loss, accuracy]
    return curves


def held_out(log: Log, rows: int = 20) -> Log:
    """The held-out evaluations, evenly thinned to about `rows`; the last one is always kept."""
    evaluations = [line for line in log if line["kind"] == HELD_OUT]
    every = math.ceil(len(evaluations) / rows) or 1
    return evaluations[::-1][::every][::-1]


def _picture(curve: Curve, log: Log) -> Picture:
    series = {
        kind: [(line["step"], line[curve.key]) for line in log if line["kind"] == kind and curve.key in line]
        for kind in (TRAIN, HELD_OUT)
    }
    description = _describe(curve, series)
    return picture_of(lambda axes: _draw(axes, curve, series), curve.key, curve.title, description, curve.height)


def picture_of(draw: Callable[[Axes], None], key: str, title: str, description: str, height: float) -> Picture:
    """Draw a picture `height` inches high in the page's colours; `key` is unique on the page.

    `draw` draws on the axes, in `INK` and the colours beside it; `description` is for screen readers.
    """
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key, "font.size": FONT_POINTS}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        axes.margins(y=0.12)
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.tick_params(colors=INK, length=0)
        draw(axes)
        buffer = io.StringIO()
        without = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=without)
    return Picture(title, description, f"0 0 {WIDTH * 72:g} {height * 72:g}", _for_page(buffer.getvalue(), key))


def _draw(axes: Axes, curve: Curve, series: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    for kind, colour, width, marker in ((TRAIN, TRAIN_COLOUR, 1.2, None), (HELD_OUT, HELD_OUT_COLOUR, 1.8, "o")):
        points = _averaged(series[kind])
        if len(points) == 1:
            marker = "o"  # a line with one point is invisible
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=width, marker=marker, markersize=3.5)
    if curve.reference is not None:
        axes.axhline(curve.reference, color=REFERENCE, linewidth=1.2, linestyle=(0, (4, 3)))
        # Above the picture: inside, a curve may cross the label.
        axes.annotate(
            f"{curve.reference_label} {curve.number(curve.reference)}",
            (1, 1), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points", ha="right", va="bottom",
            color=REFERENCE,
        )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(3 if curve.height < HEIGHT else 6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: curve.number(value)))
    axes.set_xlabel("training step", color=INK)


def _for_page(svg: str, prefix: str) -> Markup:
    """The content of matplotlib's SVG, with the page's colours and font, and ids that are unique on the page."""
    svg = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    # Its style sheet would apply to the whole page.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r" font-family: [^;\"]*;?", "", svg)
    svg = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    # Safe: its text consists of the labels and numbers above.
    return Markup(svg.strip())


def _averaged(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """Reduce the points to at most `MAX_POINTS`, each the mean of a group of neighbours.

    >>> _averaged([(1, 2.0), (2, 4.0)])
    [(1.0, 2.0), (2.0, 4.0)]
    """
    size = math.ceil(len(points) / MAX_POINTS)
    groups = [points[i : i + size] for i in range(0, len(points), max(1, size))]
    return [(sum(s for s, _ in group) / len(group), sum(v for _, v in group) / len(group)) for group in groups]


def _describe(curve: Curve, series: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    parts = []
    for kind, name in ((TRAIN, "training"), (HELD_OUT, "held out")):
        if series[kind]:
            (first, start), (last, end) = series[kind][0], series[kind][-1]
            to = f", {curve.number(end)} at step {last:,}" if last != first else ""
            parts.append(f"{name} {curve.number(start)} at step {first:,}{to}")
    if curve.reference is not None:
        parts.append(f"{curve.reference_label} {curve.number(curve.reference)}")
    return f"{curve.title} by training step: {'; '.join(parts)}"


def _entropy(share: float) -> float:
    """Loss, in nats, of always predicting the shares of real and random pairs."""
    return -sum(p * math.log(p) for p in (share, 1.0 - share) if p > 0)


def percent(value: float) -> str:
    """A share of 1 for an axis."""
    return f"{100 * value:.3g}%"
