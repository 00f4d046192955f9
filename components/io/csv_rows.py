"""Rows of CSV and TSV files."""

import csv
import io
from collections.abc import Iterator
from typing import Any, BinaryIO


def csv_rows(file: BinaryIO, **dialect: Any) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield (number of its first line, cells or an error) for each row, quoted as in RFC 4180 or another `dialect`."""
    csv.field_size_limit(2**31 - 1)  # as large as a record in memory
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text, strict=True, **dialect)
    while True:
        line = rows.line_num + 1
        try:
            yield line, next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, error
