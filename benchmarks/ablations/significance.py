"""Means over seeds, and whether our figures confirm an order of the paper, reverse it, or are inconclusive."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

from benchmarks.ablations.experiment import AblationExperiment, Arm, Column
from benchmarks.ablations.runner import Figures

Verdict = Literal["holds", "reversed", "inconclusive"]
# A difference within this many standard errors is inconclusive.
STANDARD_ERRORS = 2.0


@dataclasses.dataclass(frozen=True)
class Summary:
    """The figures of a cell.

    Attributes:
        deviation: sample standard deviation (n - 1); None for one seed.
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarize at least one figure."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation, len(values))

    @property
    def squared_error(self) -> float | None:
        """Squared standard error of the mean over the seeds."""
        return None if self.deviation is None else self.deviation**2 / self.count


@dataclasses.dataclass(frozen=True)
class Order:
    """Two arms with an order in the paper.

    Attributes:
        better, worse: the arms in the paper's order.
        by: our difference; negative if our order is the reverse.
        error: standard error of the difference; None for one seed.
        paper: the paper's difference; None if it has no figures.
    """

    better: Arm
    worse: Arm
    by: float
    error: float | None
    paper: float | None

    @property
    def verdict(self) -> Verdict:
        """Whether the order holds or is reversed by more than `STANDARD_ERRORS`; inconclusive for one seed.

        >>> a, b = Arm("a"), Arm("b")
        >>> [Order(a, b, by, 0.5, None).verdict for by in (1.5, 1.0, -1.5)]
        ['holds', 'inconclusive', 'reversed']
        """
        if self.error is None or abs(self.by) <= STANDARD_ERRORS * self.error:
            return "inconclusive"
        return "holds" if self.by > 0 else "reversed"


def orders_of(experiment: AblationExperiment, column: Column, figures: Figures) -> list[Order]:
    """The paper's orders in a column, for which we have both arms."""
    orders = []
    sign = 1 if column.higher_is_better else -1
    for better, worse in experiment.orders(column):
        cells = [figures.get((arm.name, column.header)) for arm in (better, worse)]
        if not all(cells):
            continue
        ours, theirs = (Summary.of(cell) for cell in cells if cell)
        errors = ours.squared_error, theirs.squared_error
        error = None if errors[0] is None or errors[1] is None else math.sqrt(errors[0] + errors[1])
        paper = None
        if column.header in better.paper and column.header in worse.paper:
            paper = sign * (better.paper[column.header] - worse.paper[column.header])
        orders.append(Order(better, worse, sign * (ours.mean - theirs.mean), error, paper))
    return orders


def sentences(experiment: AblationExperiment, figures: Figures) -> list[str]:
    """One sentence per column with two arms: how many orders hold, and which are reversed."""
    lines = []
    for column in experiment.columns:
        orders = orders_of(experiment, column, figures)
        if not orders:
            continue
        if any(order.error is None for order in orders):
            lines.append(f"{column.header}: one figure per arm, so orders are inconclusive.")
            continue
        by_verdict = {
            verdict: [order for order in orders if order.verdict == verdict]
            for verdict in ("holds", "reversed", "inconclusive")
        }
        held, reversed_, inconclusive = by_verdict.values()
        source = "expected" if orders[0].paper is None else "of the paper"
        parts = [
            f"of {len(orders)} order{'s' * (len(orders) > 1)} {source}, {len(held)} hold{'s' * (len(held) == 1)}",
            f"{len(inconclusive)} {'is' if len(inconclusive) == 1 else 'are'} inconclusive",
            f"{len(reversed_)} {'is' if len(reversed_) == 1 else 'are'} reversed",
        ]
        details = [f"holds: {_in_words(order)}" for order in held]
        details += [f"**reversed**: {_in_words(order)}" for order in reversed_]
        lines.append(f"{column.header}: {', '.join(parts)}{'. ' if details else ''}{'; '.join(details)}.")
    return lines


def _in_words(order: Order) -> str:
    """Format an order: BERT over No NSP by +1.2 (standard error 0.4; the paper by +0.5)."""
    paper = "" if order.paper is None else f"; the paper by {order.paper:+.2g}"
    return f"{order.better.name} over {order.worse.name} by {order.by:+.2f} (standard error {order.error:.2f}{paper})"
