"""Rows read from task files, and handling of malformed rows."""

import csv
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from components.io.csv_rows import csv_rows

BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class LocatedRow:
    """A row, and where it is in its file ("line 7")."""

    where: str
    row: TaskRow
    group: str = ""  # key of rows that are held out together, such as the questions on an article; "": none


@dataclasses.dataclass(frozen=True)
class BadRow:
    """A malformed row, and the reason; `record` is its content as the reader gives it, None if it cannot be read."""

    where: str
    why: str
    record: Any = None


@dataclasses.dataclass(frozen=True)
class Note:
    """A valid row worth reporting; notes are counted by their text. `record` is the content of a row left out."""

    where: str
    text: str
    record: Any = None


ReadRows = Iterator[LocatedRow | BadRow | Note]


class RowError(ValueError):
    """Reason why a record is not a valid row."""


@dataclasses.dataclass
class ReadReport:
    """Counts of malformed rows that were skipped, the first of them, by file; and of notes, by (file, text)."""

    skipped: Counter[str] = dataclasses.field(default_factory=Counter)
    first: dict[str, BadRow] = dataclasses.field(default_factory=dict)
    notes: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)

    def note(self, path: str, note: Note) -> None:
        """Count a note."""
        self.notes[path, note.text] += 1

    def bad_row(self, path: str, bad: BadRow, on_bad_row: str) -> None:
        """Count a malformed row; InputError, with file, line, reason and remedy, if `on_bad_row` is "fail"."""
        if "unexpected end of data" in bad.why:  # of CSV: this row is the whole rest of the file
            raise InputError(f"{path}, {bad.where}: {bad.why}; close the quote that this row opens")
        if on_bad_row == "fail":
            raise InputError(
                f"{path}, {bad.where}: {bad.why}; correct it, or skip such rows with --set data.on_bad_row=skip"
            )
        self.skipped[path] += 1
        self.first.setdefault(path, bad)

    def lines(self) -> list[str]:
        """The counts, one line each."""
        bad = [
            f"{path}: {count:,} malformed row(s) skipped; the first: {self.first[path].where}: {self.first[path].why}"
            for path, count in sorted(self.skipped.items())
        ]
        return bad + [f"{path}: {count:,} x {text}" for (path, text), count in sorted(self.notes.items()) if count]


def rows_of(records: Iterable[tuple[str, Any]], parse: Callable[[int, Any], LocatedRow | Note | TaskRow]) -> ReadRows:
    """Parse (where, record) pairs; `parse` gets the record's number, from 0, malformed ones included."""
    for number, (where, record) in enumerate(records):
        try:
            if isinstance(record, Exception):
                raise RowError(str(record))
            parsed = parse(number, record)
        except RowError as error:
            yield BadRow(where, str(error), None if isinstance(record, Exception) else record)
            continue
        if isinstance(parsed, Note):
            yield Note(where, parsed.text, record)
        else:
            yield LocatedRow(where, parsed) if isinstance(parsed, TaskRow) else dataclasses.replace(parsed, where=where)


def numbered_lines(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield ("line 1", content) of each non-empty line, without line end and byte order mark."""
    # Only line feeds end a line: texts may contain U+2028, at which `str.splitlines` would split.
    for number, line in enumerate(iter(file.readline, b""), 1):
        if content := (line.removeprefix(BOM) if number == 1 else line).rstrip(b"\r\n"):
            yield f"line {number}", content


def decoded(content: bytes) -> str:
    """Decode UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RowError(f"is not UTF-8 (byte {error.start} of the line)") from error


def tab_columns(content: bytes, count: int, whose: str) -> list[str]:
    """Columns of a TSV line, `count` of them as in `whose` header; quotes are ordinary characters."""
    columns = decoded(content).split("\t")
    if len(columns) != count:
        raise RowError(f"has {len(columns)} columns, not {whose} {count}")
    return columns


def csv_records(file: BinaryIO) -> Iterator[tuple[str, list[str] | Exception]]:
    """Yield ("line 3", columns or an error) for each record of a CSV, quoted as in RFC 4180; line 3 is its first."""
    for line, record in csv_rows(file):
        if isinstance(record, csv.Error):
            yield f"line {line}", RowError(f"is not CSV ({record})")
        elif any("\udc80" <= character <= "\udcff" for column in record for character in column):
            yield f"line {line}", RowError("is not UTF-8")
        elif record:
            yield f"line {line}", record


def check_repeated(where: str, header: Sequence[str], names: Iterable[str]) -> None:
    """InputError: the header has one of the names several times."""
    if repeated := [name for name in names if name and header.count(name) > 1]:
        raise InputError(f"{where}: several columns are named {repeated[0]!r}; rename the others")


def by_name(columns: list[str], header: list[str]) -> dict[str, str]:
    """Columns of a row by the names in the header."""
    if len(columns) != len(header):
        raise RowError(f"has {len(columns)} columns, not the header's {len(header)}")
    return dict(zip(header, columns, strict=True))


def number_of(text: str, what: str) -> float:
    """Parse a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RowError(f"{what} is {text!r}, not a number")
    return value


def index_of(text: str, what: str) -> int:
    """Parse a whole number."""
    try:
        return int(text)
    except ValueError as error:
        raise RowError(f"{what} is {text!r}, not a whole number") from error
