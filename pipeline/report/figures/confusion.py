"""Confusion matrix of a classification task."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

# With more labels the most frequent mistakes are listed in place of the matrix.
MAX_LABELS = 12
PAIRS_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Cell:
    """Rows with one pair of true and predicted label: their number, and share of the true label's rows."""

    count: int
    share: float


@dataclasses.dataclass(frozen=True)
class Confusion:
    """A confusion matrix, or the most frequent mistakes.

    Attributes:
        labels: in the order of their ids; empty if there are too many.
        lines: true label, its cells by predicted label, number of rows.
        pairs: replace the matrix for many labels: true label, predicted label, number of rows.
    """

    labels: list[str]
    lines: list[tuple[str, list[Cell], int]]
    pairs: list[tuple[str, str, int]]


def confusion(labels: Sequence[str], golds: Sequence[str], answers: Sequence[str]) -> Confusion:
    """Count pairs of true and predicted labels."""
    counts = Counter(zip(golds, answers, strict=True))
    if len(labels) > MAX_LABELS:
        order = {label: number for number, label in enumerate(labels)}
        wrong = [(gold, answer, n) for (gold, answer), n in counts.items() if gold != answer]
        wrong.sort(key=lambda pair: (-pair[2], order[pair[0]], order[pair[1]]))
        return Confusion([], [], wrong[:PAIRS_SHOWN])
    lines = []
    for gold in labels:
        of_gold = [counts[gold, answer] for answer in labels]
        total = sum(of_gold)
        lines.append((gold, [Cell(n, n / (total or 1)) for n in of_gold], total))
    return Confusion(list(labels), lines, [])
