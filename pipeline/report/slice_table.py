"""What was measured of parts of the held-out split, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A metric: its title, and how a value is written."""

    title: str
    number: Callable[[float], str]


class SliceTable(NamedTuple):
    """The parts, a row each; the first column says which, the second how many examples."""

    caption: str
    titles: list[str]
    rows: list[list[str]]


def slice_table(summary: Mapping[str, Any], counted: str, lengths: str, columns: Mapping[str, Column]) -> SliceTable:
    """The table of a run.

    Args:
        summary: of `summary.json`.
        counted: what is counted: "Rows".
        lengths: what lengths are, in a sentence.
        columns: by the name of a metric, in their order.
    """
    titles = ["Part", counted, *(column.title for column in columns.values())]
    rows = []
    for part in summary["slices"]:
        cells = [_cell(column, part["metrics"][name], part["intervals"].get(name)) for name, column in columns.items()]
        rows.append([f"{part['by']} {part['of']}", f"{part['metrics']['example_count']:,.0f}", *cells])
    return SliceTable(f"{lengths} In brackets the 95 % confidence interval.", titles, rows)


def _cell(column: Column, value: float, interval: Sequence[float] | None) -> str:
    """46.1 (44.0 to 48.2)"""
    ends = "" if interval is None else f" ({' to '.join(map(column.number, interval))})"
    return column.number(value) + ends
