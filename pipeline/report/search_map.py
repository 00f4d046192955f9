"""A search as a map: a table a batch size, epochs down, learning rates across, the darker the better."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.score_forms import ScoreForm
from pipeline.search_report import BATCH, EPOCHS, RATE

# What `pipeline.task_summary` has of a training of a search.
Training = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A training: its score, how dark it is in [0, 1], and whether it is the best."""

    score: str
    shade: float
    best: bool


@dataclasses.dataclass(frozen=True)
class Search:
    """What the page shows of it.

    Attributes:
        said: the best training in words.
        rates: learning rates, a column each.
        maps: batch size and its lines: epochs, and a cell a learning rate.
        ranking: batch, learning rate, epochs and score of all, the best first.
    """

    said: str
    rates: list[str]
    maps: list[tuple[int, list[tuple[str, list[Cell]]]]]
    ranking: list[tuple[str, str, str, str]]


def search_map(found: Mapping[str, Any], form: ScoreForm) -> Search:
    """The map of what `pipeline.search_report.write_search` found.

    Args:
        found: its `trainings` and the `best` of them.
        form: of the score by which they were judged.
    """
    trainings, best = found["trainings"], found["best"]
    scores = [training["score"] for training in trainings if _has_score(training)]
    lowest, span = min(scores), max(scores) - min(scores)

    def cell(training: Training) -> Cell:
        shade = 0.0 if not _has_score(training) else (training["score"] - lowest) / span if span else 1.0
        return Cell(form.number(training["score"]), shade, training == best)

    batches, rates, passes = (_values(trainings, name) for name in (BATCH, RATE, EPOCHS))
    by_values = {tuple(training[name] for name in (BATCH, EPOCHS, RATE)): training for training in trainings}
    ranking = sorted(trainings, key=lambda training: -training["score"] if _has_score(training) else math.inf)
    said = (
        f"{form.title} {form.number(best['score'])}, the best of {len(trainings)}: batch {best[BATCH]}, "
        f"learning rate {best[RATE]:g}, {epochs(best[EPOCHS])}."
    )
    return Search(
        said,
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
    """In the order in which they were given."""
    return list(dict.fromkeys(training[name] for training in trainings))


def epochs(number: float) -> str:
    """3.0 -> 3 epochs"""
    return f"{number:g} epoch{'s' * (number != 1)}"
