"""A student beside its teacher: what it loses, and what it saves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from pipeline.report.figures.curves import HELD_OUT_COLOUR, INK, REFERENCE, SMALL_HEIGHT, Picture, picture_of
from pipeline.report.score_format import ScoreForm


class Comparison(NamedTuple):
    """A row a figure: title, student, teacher, and the share in per cent; the shares as a picture."""

    rows: list[tuple[str, str, str, str]]
    picture: Picture


def comparison(summary: Mapping[str, Any], form: ScoreForm) -> Comparison | None:
    """Table and picture of `teacher.json` (`components.evaluator.component`); None without a teacher."""
    if not (figures := summary["teacher"]):
        return None
    costs = figures["costs"]
    pairs = [(form.title, figures["model"], figures["scores"][figures["metric"]], form.number)]
    for name, title in (("cpu_ms", "CPU ms a row"), ("megabytes", "MB of weights")):
        pairs.append((title, costs["model"][name], costs["teacher"][name], "{:.3g}".format))
    shares = [(title, new / old if new is not None and old else 0.0) for title, new, old, _ in pairs]
    rows = [
        (t, number(new), number(old), f"{s:.1%}") for (t, new, old, number), (_, s) in zip(pairs, shares, strict=True)
    ]
    title = "Share of the teacher's"
    described = f"{title}: {'; '.join(f'{figure} {share}' for figure, _, _, share in rows)}"
    return Comparison(rows, picture_of(lambda axes: _draw(axes, shares), "teacher", title, described, SMALL_HEIGHT))


def _draw(axes: Axes, shares: Sequence[tuple[str, float]]) -> None:
    places = range(len(shares))
    axes.barh(places, [share for _, share in shares], color=HELD_OUT_COLOUR, height=0.55)
    axes.axvline(1.0, color=REFERENCE, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_yticks(places, [title for title, _ in shares])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("of the teacher's", color=INK)
