"""Figures of the data gate, as rows with a picture of the allowed range."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from components.example_gate.limits import Figure

# A row's scale ends at this multiple of its last limit.
MARGIN = 1.25


@dataclasses.dataclass(frozen=True)
class DataRow:
    """A figure of the data gate; `low` and `high`, its limits, and `at` are positions on the row's scale, in [0, 1]."""

    label: str
    value: str
    wanted: str
    low: float
    high: float
    at: float


def data_rows(figures: Sequence[Mapping[str, Any]]) -> list[DataRow]:
    """A row for each evaluated figure of `verdict.json`, on a scale from 0 to beyond its limits."""
    return [_row(figure, figure.value) for figure in (Figure(**f) for f in figures) if figure.value is not None]


def _row(figure: Figure, value: float) -> DataRow:
    low, high = figure.minimum or 0.0, figure.maximum
    end = max(value, MARGIN * (low if high is None else high)) or 1.0
    upper = 1.0 if high is None else high / end
    return DataRow(figure.title, figure.text(value), figure.wanted, low / end, upper, value / end)
