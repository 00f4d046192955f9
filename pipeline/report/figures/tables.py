"""Tables of the report: metrics of slices, confused labels, the map of a hyper-parameter search."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.report.score_format import ScoreForm
from pipeline.summaries.task import BATCH, EPOCHS, RATE

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
    """A confusion matrix, a line a true label with the cells of the predicted ones and the number of rows.

    With too many labels it has the most frequent mistakes instead: `pairs` of labels and their number of rows.
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


class Column(NamedTuple):
    """A metric: its title, and the format of its values."""

    title: str
    number: Callable[[float], str]


class SliceTable(NamedTuple):
    """One row per slice: its name, its number of examples, its metrics."""

    caption: str
    titles: list[str]
    rows: list[list[str]]


def slice_table(summary: Mapping[str, Any], counted: str, lengths: str, columns: Mapping[str, Column]) -> SliceTable:
    """The table of a run's slices, with their number of `counted`; `lengths` says the unit of their lengths."""
    titles = ["Part", counted, *(column.title for column in columns.values())]
    rows = []
    for part in summary["slices"]:
        cells = [_cell(column, part["metrics"][name], part["intervals"].get(name)) for name, column in columns.items()]
        rows.append([f"{part['by']} {part['of']}", f"{part['metrics']['example_count']:,.0f}", *cells])
    return SliceTable(f"{lengths} In brackets the 95 % confidence interval.", titles, rows)


def _cell(column: Column, value: float, interval: Sequence[float] | None) -> str:
    """Format a value and its interval: 46.1 (44.0 to 48.2)."""
    ends = "" if interval is None else f" ({' to '.join(map(column.number, interval))})"
    return column.number(value) + ends


@dataclasses.dataclass(frozen=True)
class SearchCell:
    """A training: its score, its shade in [0, 1], and whether it is the best."""

    score: str
    shade: float
    best: bool


@dataclasses.dataclass(frozen=True)
class Search:
    """Tables of a search: for each batch size lines of epochs with a cell per learning rate; and a ranking."""

    headline: str
    rates: list[str]
    maps: list[tuple[int, list[tuple[str, list[SearchCell]]]]]
    ranking: list[tuple[str, str, str, str]]


def search_map(search: Mapping[str, Any], form: ScoreForm) -> Search:
    """The map of a search (`bert_keras.finetuning.search`): a table per batch size, epochs down, rates across."""
    trainings, best = search["trainings"], search["best"]
    scores = [training["score"] for training in trainings if _has_score(training)]
    lowest, span = min(scores), max(scores) - min(scores)

    def cell(training: Mapping[str, Any]) -> SearchCell:
        shade = 0.0 if not _has_score(training) else (training["score"] - lowest) / span if span else 1.0
        return SearchCell(form.number(training["score"]), shade, training == best)

    batches, rates, passes = (list(dict.fromkeys(t[name] for t in trainings)) for name in (BATCH, RATE, EPOCHS))
    by_values = {tuple(training[name] for name in (BATCH, EPOCHS, RATE)): training for training in trainings}
    ranking = sorted(trainings, key=lambda training: -training["score"] if _has_score(training) else math.inf)
    headline = (
        f"{form.title} {form.number(best['score'])}, the best of {len(trainings)}: batch {best[BATCH]}, "
        f"learning rate {best[RATE]:g}, {epochs(best[EPOCHS])}."
    )
    return Search(
        headline,
        [f"{rate:g}" for rate in rates],
        [
            (batch, [(epochs(n), [cell(by_values[batch, n, rate]) for rate in rates]) for n in passes])
            for batch in batches
        ],
        [(str(t[BATCH]), f"{t[RATE]:g}", f"{t[EPOCHS]:g}", form.number(t["score"])) for t in ranking],
    )


def _has_score(training: Mapping[str, Any]) -> bool:
    return training["score"] is not None and not math.isnan(training["score"])


def epochs(number: float) -> str:
    """Format a number of epochs: 3.0 -> 3 epochs."""
    return f"{number:g} epoch{'s' * (number != 1)}"
