"""Metrics of slices of the held-out split, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


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
    """The table of a run's slices.

    Args:
        counted: title of the counts, such as "Rows".
        lengths: a sentence on the unit of the lengths.
        columns: metrics by name, in the order of the columns.
    """
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
