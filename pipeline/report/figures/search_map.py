"""Map of a hyper-parameter search: a table per batch size, epochs down, learning rates across; darker is better."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.score_format import ScoreForm
from pipeline.summaries.search import BATCH, EPOCHS, RATE

# A training of a search, as in `pipeline.summaries.task`.
Training = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A training: its score, its shade in [0, 1], and whether it is the best."""

    score: str
    shade: float
    best: bool


@dataclasses.dataclass(frozen=True)
class Search:
    """Tables of a search.

    Attributes:
        maps: batch size and its lines: epochs, and one cell per learning rate.
        ranking: batch, learning rate, epochs and score of all trainings, the best first.
    """

    headline: str
    rates: list[str]
    maps: list[tuple[int, list[tuple[str, list[Cell]]]]]
    ranking: list[tuple[str, str, str, str]]


def search_map(search: Mapping[str, Any], form: ScoreForm) -> Search:
    """The map of a search written by `pipeline.summaries.search.write_search`.

    Args:
        search: its `trainings` and the `best` of them.
        form: format of the score that ranks them.
    """
    trainings, best = search["trainings"], search["best"]
    scores = [training["score"] for training in trainings if _has_score(training)]
    lowest, span = min(scores), max(scores) - min(scores)

    def cell(training: Training) -> Cell:
        shade = 0.0 if not _has_score(training) else (training["score"] - lowest) / span if span else 1.0
        return Cell(form.number(training["score"]), shade, training == best)

    batches, rates, passes = (_values(trainings, name) for name in (BATCH, RATE, EPOCHS))
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


def _has_score(training: Training) -> bool:
    return training["score"] is not None and not math.isnan(training["score"])


def _values(trainings: Sequence[Training], name: str) -> list[Any]:
    """The distinct values of a hyper-parameter, in the order of the search."""
    return list(dict.fromkeys(training[name] for training in trainings))


def epochs(number: float) -> str:
    """Format a number of epochs: 3.0 -> 3 epochs."""
    return f"{number:g} epoch{'s' * (number != 1)}"
