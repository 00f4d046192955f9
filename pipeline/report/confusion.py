"""Which labels were taken for which."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

# More labels than this are no table to read: the commonest mistakes are.
MOST_LABELS = 12
PAIRS_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Cell:
    """Rows of one right and one given label, and which share of those of the right one they are."""

    count: int
    share: float


@dataclasses.dataclass(frozen=True)
class Confusion:
    """What the page shows.

    Attributes:
        labels: in the order of their ids; empty where they are too many.
        lines: right label, its cells by given label, how many rows.
        pairs: in place of these, of the commonest mistakes: right label, given label, rows.
    """

    labels: list[str]
    lines: list[tuple[str, list[Cell], int]]
    pairs: list[tuple[str, str, int]]


def confusion(labels: Sequence[str], golds: Sequence[str], answers: Sequence[str]) -> Confusion:
    """Counts of right and given labels.

    Args:
        labels: the task's.
        golds: right ones, a row each.
        answers: given ones.
    """
    counts = Counter(zip(golds, answers, strict=True))
    if len(labels) > MOST_LABELS:
        order = {label: number for number, label in enumerate(labels)}
        wrong = [(gold, said, n) for (gold, said), n in counts.items() if gold != said]
        wrong.sort(key=lambda pair: (-pair[2], order[pair[0]], order[pair[1]]))
        return Confusion([], [], wrong[:PAIRS_SHOWN])
    lines = []
    for gold in labels:
        of_gold = [counts[gold, said] for said in labels]
        total = sum(of_gold)
        lines.append((gold, [Cell(n, n / (total or 1)) for n in of_gold], total))
    return Confusion(list(labels), lines, [])
