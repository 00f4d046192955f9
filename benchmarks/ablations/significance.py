"""Means over seeds, and whether our figures confirm an order of the paper, reverse it, or are inconclusive."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from benchmarks.ablations.experiment import AblationExperiment, Arm, Column
from benchmarks.ablations.runner import Figures

Verdict = Literal["holds", "reversed", "inconclusive"]
# A difference within this many standard errors is inconclusive.
STANDARD_ERRORS = 2.0


class Summary(NamedTuple):
    """The figures of a cell; their sample standard deviation (n - 1) is None for one seed."""

    mean: float
    deviation: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarize at least one figure."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation, len(values))

    @property
    def squared_error(self) -> float:
        """Squared standard error of the mean over the seeds; infinite for one."""
        return math.inf if self.deviation is None else self.deviation**2 / self.seeds


class Order(NamedTuple):
    """Two arms with an order in the paper.

    Attributes:
        better, worse: the arms in the paper's order.
        by: our difference; negative if our order is the reverse.
        error: standard error of the difference; infinite for one seed.
        paper: the paper's difference; None if it has no figures.
    """

    better: Arm
    worse: Arm
    by: float
    error: float
    paper: float | None

    @property
    def verdict(self) -> Verdict:
        """The verdict: holds, or reversed, by more than `STANDARD_ERRORS`; else inconclusive.

        >>> a, b = Arm("a"), Arm("b")
        >>> [Order(a, b, by, 0.5, None).verdict for by in (1.5, 1.0, -1.5)]
        ['holds', 'inconclusive', 'reversed']
        """
        if abs(self.by) <= STANDARD_ERRORS * self.error:
            return "inconclusive"
        return "holds" if self.by > 0 else "reversed"

    def __str__(self) -> str:
        """For example: BERT over No NSP by +1.2 (standard error 0.4; the paper by +0.5)."""
        paper = "" if self.paper is None else f"; the paper by {self.paper:+.2g}"
        return f"{self.better.name} over {self.worse.name} by {self.by:+.2f} (standard error {self.error:.2f}{paper})"


def orders_of(experiment: AblationExperiment, column: Column, figures: Figures) -> list[Order]:
    """The paper's orders in a column, for which we have both arms."""
    orders = []
    sign = 1 if column.higher_is_better else -1
    for better, worse in experiment.orders(column):
        cells = [values for arm in (better, worse) if (values := figures.get((arm.name, column.header)))]
        if len(cells) < 2:
            continue
        ours, theirs = map(Summary.of, cells)
        paper = None
        if column.header in better.paper and column.header in worse.paper:
            paper = sign * (better.paper[column.header] - worse.paper[column.header])
        error = math.sqrt(ours.squared_error + theirs.squared_error)
        orders.append(Order(better, worse, sign * (ours.mean - theirs.mean), error, paper))
    return orders


def sentences(experiment: AblationExperiment, figures: Figures) -> list[str]:
    """One sentence per column with two arms: how many orders hold, and which are reversed."""
    lines = []
    for column in experiment.columns:
        orders = orders_of(experiment, column, figures)
        if any(math.isinf(order.error) for order in orders):
            lines.append(f"{column.header}: one figure per arm, so orders are inconclusive.")
        elif orders:
            counts = Counter(order.verdict for order in orders)
            source = "expected" if orders[0].paper is None else "of the paper"
            words = [f"{counts[verdict]} {verdict}" for verdict in ("holds", "inconclusive", "reversed")]
            details = [f"holds: {order}" for order in orders if order.verdict == "holds"]
            details += [f"**reversed**: {order}" for order in orders if order.verdict == "reversed"]
            orders_in_words = f"{len(orders)} order{'s' * (len(orders) > 1)} {source}"
            lines.append(f"{column.header}, {orders_in_words}: {'; '.join([', '.join(words), *details])}.")
    return lines
