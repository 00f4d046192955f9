"""What readers find in files, and what is made of what is not as it should be."""

from __future__ import annotations

import csv
import dataclasses
import io
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow

# Of each file: more bad rows than these are counted only.
ROWS_SHOWN = 5
_BOM = b"\xef\xbb\xbf"
# A field of csv's may be as long as a record in memory.
_MAX_FIELD = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Found:
    """A row.

    Attributes:
        where: in its file ("line 7").
        row: what was read.
        group: rows of one group (the questions of an article) are not parted when rows are held out; "": it has none.
    """

    where: str
    row: TaskRow
    group: str = ""


@dataclasses.dataclass(frozen=True)
class BadRow:
    """A row that cannot be used, and why."""

    where: str
    why: str


@dataclasses.dataclass(frozen=True)
class Note:
    """What is right by the rules of the data, and yet to be told: it is counted by its text."""

    where: str
    text: str


class RowError(ValueError):
    """Why a record is no row."""


@dataclasses.dataclass
class ReadReport:
    """What was met while files were read.

    Attributes:
        skipped: by file, how many bad rows were left out.
        notes: by (file, text), how often.
    """

    skipped: Counter[str] = dataclasses.field(default_factory=Counter)
    notes: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)

    def bad_row(self, path: str, bad: BadRow, on_bad_row: str) -> None:
        """Counts a bad row, or stops at it.

        Raises:
            InputError: on_bad_row is "fail"; one line with file, line, why and remedy.
        """
        if on_bad_row == "fail":
            raise InputError(
                f"{path}, {bad.where}: {bad.why}; mend it, or leave such rows out with --set data.on_bad_row=skip"
            )
        self.skipped[path] += 1
        if self.skipped[path] <= ROWS_SHOWN:
            logging.warning("%s, %s: left out: %s", path, bad.where, bad.why)

    def lines(self) -> list[str]:
        """The counts, a line each."""
        bad = [f"{path}: {count:,} bad row(s) left out" for path, count in sorted(self.skipped.items())]
        return bad + [f"{path}: {count:,} x {text}" for (path, text), count in sorted(self.notes.items())]


Records = Iterable[tuple[str, Any]]


def rows_of(records: Records, parse: Callable[[int, Any], Found | Note | TaskRow]) -> Iterator[Found | BadRow | Note]:
    """What `parse` makes of (where, record); it is given the record's number, from 0, bad ones counted too."""
    for number, (where, record) in enumerate(records):
        try:
            if isinstance(record, Exception):
                raise RowError(str(record))
            parsed = parse(number, record)
        except RowError as error:
            yield BadRow(where, str(error))
            continue
        yield Found(where, parsed) if isinstance(parsed, TaskRow) else dataclasses.replace(parsed, where=where)


def numbered_lines(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """("line 1", content) of each line that is not empty, without line end and byte order mark.

    A line ends at a line feed alone: U+2028, which `str.splitlines` takes for one, stands in texts.
    """
    for number, line in enumerate(iter(file.readline, b""), 1):
        content = line.rstrip(b"\r\n")
        if number == 1:
            content = content.removeprefix(_BOM)
        if content:
            yield f"line {number}", content


def decoded(content: bytes) -> str:
    """The text of UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RowError(f"is not UTF-8 (byte {error.start} of the line)") from error


def tab_columns(content: bytes, count: int, whose: str) -> list[str]:
    """The columns of a line of a TSV; a quote is a character as others are.

    Args:
        count: how many there must be.
        whose: who says so, for the error.
    """
    columns = decoded(content).split("\t")
    if len(columns) != count:
        raise RowError(f"has {len(columns)} columns, not {whose} {count}")
    return columns


def csv_records(file: BinaryIO) -> Iterator[tuple[str, list[str] | Exception]]:
    """("line 3", columns) of a CSV, quoted as in RFC 4180; of several lines, the last. Errors are records."""
    csv.field_size_limit(_MAX_FIELD)
    # Bytes that are no UTF-8 must not stop the reader: they are found below.
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text, strict=True)
    while True:
        try:
            record = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"line {rows.line_num}", RowError(f"is not CSV ({error})")
            continue
        if any("\udc80" <= character <= "\udcff" for column in record for character in column):
            yield f"line {rows.line_num}", RowError("is not UTF-8")
        elif record:
            yield f"line {rows.line_num}", record


def by_name(columns: list[str], header: list[str]) -> dict[str, str]:
    """A row's columns by the header's names."""
    if len(columns) != len(header):
        raise RowError(f"has {len(columns)} columns, not the header's {len(header)}")
    return dict(zip(header, columns, strict=True))


def index_of(text: str, what: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError as error:
        raise RowError(f"{what} is {text!r}, not a whole number") from error
