"""Means over seeds, and whether an order of the paper is there in ours, is reversed, or cannot be told."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

from pipeline.ablations.experiment import Arm, Column, Experiment
from pipeline.ablations.run import Figures

Verdict = Literal["holds", "reversed", "not told apart"]
# A difference of fewer standard errors than this is none.
STANDARD_ERRORS = 2.0


@dataclasses.dataclass(frozen=True)
class Summary:
    """The figures of a cell.

    Attributes:
        mean: over the seeds.
        deviation: the sample's standard deviation, of n - 1; None of one seed.
        count: seeds.
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Of at least one figure."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation, len(values))

    @property
    def squared_error(self) -> float | None:
        """Of the mean: its variance over choices of the seeds."""
        return None if self.deviation is None else self.deviation**2 / self.count


@dataclasses.dataclass(frozen=True)
class Order:
    """Two arms whose order the paper has.

    Attributes:
        better, worse: the paper's.
        by: how much better ours is: negative, worse.
        error: the standard error of that; None: of one seed, nothing says it.
        paper: how much better the paper's is; None: it has no figures.
    """

    better: Arm
    worse: Arm
    by: float
    error: float | None
    paper: float | None

    @property
    def verdict(self) -> Verdict:
        """Reversed, or held, by more than `STANDARD_ERRORS`; of one seed it is not told.

        >>> a, b = Arm("a"), Arm("b")
        >>> [Order(a, b, by, 0.5, None).verdict for by in (1.5, 1.0, -1.5)]
        ['holds', 'not told apart', 'reversed']
        """
        if self.error is None or abs(self.by) <= STANDARD_ERRORS * self.error:
            return "not told apart"
        return "holds" if self.by > 0 else "reversed"


def orders_of(experiment: Experiment, column: Column, figures: Figures) -> list[Order]:
    """The orders of the paper in a column of which we have both arms."""
    found = []
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
        found.append(Order(better, worse, sign * (ours.mean - theirs.mean), error, paper))
    return found


def sentences(experiment: Experiment, figures: Figures) -> list[str]:
    """A sentence a column with two arms: how many orders hold, which are reversed."""
    said = []
    for column in experiment.columns:
        orders = orders_of(experiment, column, figures)
        if not orders:
            continue
        if any(order.error is None for order in orders):
            said.append(f"{column.header}: of one figure an arm, so no order can be told.")
            continue
        by_verdict = {
            verdict: [order for order in orders if order.verdict == verdict]
            for verdict in ("holds", "reversed", "not told apart")
        }
        held, turned, untold = by_verdict.values()
        whose = "expected" if orders[0].paper is None else "of the paper"
        parts = [
            f"of {len(orders)} order{'s' * (len(orders) > 1)} {whose}, {len(held)} hold{'s' * (len(held) == 1)}",
            f"{len(untold)} cannot be told apart",
            f"{len(turned)} {'is' if len(turned) == 1 else 'are'} reversed",
        ]
        details = [f"holds: {_told(order)}" for order in held] + [f"**reversed**: {_told(order)}" for order in turned]
        said.append(f"{column.header}: {', '.join(parts)}{'. ' if details else ''}{'; '.join(details)}.")
    return said


def _told(order: Order) -> str:
    """BERT over No NSP by +1.2 (standard error 0.4; the paper by +0.5)"""
    paper = "" if order.paper is None else f"; the paper by {order.paper:+.2g}"
    return f"{order.better.name} over {order.worse.name} by {order.by:+.2f} (standard error {order.error:.2f}{paper})"
