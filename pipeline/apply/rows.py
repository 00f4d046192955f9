"""Rows of a range of a file: JSON lines, CSV, TSV, Parquet, TFRecords of tf.Examples.

    {"text": "Well, yes", "id": 7}          a line of JSON
    text,id                                 CSV (RFC 4180) or TSV (no quoting), after a header; all values are text
    "Well, yes",7

is Row(1, {"text": "Well, yes", "id": 7}), and Row(2, {"text": "Well, yes", "id": "7"}) in CSV. A feature of a
tf.Example with one value is that value, with more a list; the column `examples` is the whole record, for signatures
that take it.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, NamedTuple

from pyarrow import parquet

from bert_keras.errors import InputError
from components.corpus_gen.readers import ReadUnit, cannot_be_read
from components.io.archives import ARCHIVE_ERRORS
from components.io.compression import READ_ERRORS, decompressed
from components.io.line_ranges import lines_between
from components.io.shards import open_file
from components.io.tfrecord import Example, read_records
from components.task_example_gen.readers.records import RowError, by_name, csv_records, decoded
from components.task_example_gen.readers.table import json_object
from pipeline.apply.ranges import group_starts, kind_of
from serving.api.json_tensors import b64_value, text_value

_BOM = b"\xef\xbb\xbf"
_PARQUET_ROWS = 256
_EXAMPLES = "examples"


class Row(NamedTuple):
    """A row of a range.

    Attributes:
        number: in its range, from 1: of its last line in JSON lines, CSV and TSV, else of the record.
        values: by column; None for a blank line, or the reason why there are none.
    """

    number: int
    values: dict[str, Any] | RowError | None


def read_rows(unit: ReadUnit, required: Collection[str], wanted: Collection[str]) -> Iterator[Row]:
    """Rows of a range, one at a time.

    Args:
        required: columns that a header must have.
        wanted: columns that are read from Parquet, if they are there.

    Raises:
        InputError: the file is damaged, or its header lacks a column; names it.
    """
    try:
        kind, compressed = kind_of(unit.path)
        with open_file(unit.path) as file:
            content: BinaryIO = decompressed(file, unit.path) if compressed else file
            if kind == "parquet":
                yield from _parquet_rows(content, unit, required, wanted)
            elif kind == "tfrecord":
                yield from _examples(content, unit.path)
            elif kind:
                yield from _lines(content, unit, kind, required)
    except (*READ_ERRORS, *ARCHIVE_ERRORS) as error:
        raise cannot_be_read(unit.path, error) from error


def _lines(file: BinaryIO, unit: ReadUnit, kind: str, required: Collection[str]) -> Iterator[Row]:
    header: list[str] = []
    if kind != "jsonl":
        with open_file(unit.path) as whole:
            _, first = next(lines_between(decompressed(whole, unit.path), quoted=kind == "csv"), (0, b""))
        header = _columns(first.removeprefix(_BOM), kind)
        _check_columns(unit.path, header, required)
    number = 0
    for position, line in lines_between(file, unit.start, unit.end, quoted=kind == "csv"):
        number += line.count(b"\n") + (not line.endswith(b"\n"))
        content = line.removeprefix(_BOM) if not position else line
        blank = not content.strip() or (header and not position)
        yield Row(number, None if blank else _attempt(content, kind, header))


def _attempt(line: bytes, kind: str, header: list[str]) -> dict[str, Any] | RowError:
    try:
        return json_object(line) if kind == "jsonl" else dict(by_name(_columns(line, kind), header))
    except RowError as error:
        return error


def _columns(line: bytes, kind: str) -> list[str]:
    if kind == "tsv":
        return decoded(line.rstrip(b"\r\n")).split("\t")
    records = [record for _, record in csv_records(io.BytesIO(line))]
    if isinstance(records[0], Exception):
        raise records[0]
    if len(records) > 1:
        raise RowError("has a double quote inside a value without quotes")
    return records[0]


def _check_columns(path: str, found: Collection[str], required: Collection[str]) -> None:
    if missing := sorted(set(required) - set(found)):
        raise InputError(
            f"{path}: has no column {missing[0]!r}, but {', '.join(map(repr, found))}; "
            "name it with --column INPUT=COLUMN"
        )


def _parquet_rows(file: BinaryIO, unit: ReadUnit, required: Collection[str], wanted: Collection[str]) -> Iterator[Row]:
    table = parquet.ParquetFile(file)
    _check_columns(unit.path, table.schema_arrow.names, required)
    columns = [name for name in table.schema_arrow.names if name in wanted]
    end = unit.end
    groups = [n for n, at in enumerate(group_starts(table)) if unit.start <= at and (end is None or at < end)]
    number = 0
    for batch in table.iter_batches(_PARQUET_ROWS, row_groups=groups, columns=columns):
        for row in range(batch.num_rows):
            number += 1
            try:
                yield Row(number, batch.slice(row, 1).to_pylist()[0])
            except UnicodeDecodeError:
                yield Row(number, RowError("is not UTF-8"))


def _examples(file: BinaryIO, path: str) -> Iterator[Row]:
    try:
        for number, record in enumerate(read_records(file), 1):
            yield Row(number, _values(record))
    except ValueError as error:
        raise InputError(f"{path}, {error}; give a whole file") from error


def _values(record: bytes) -> dict[str, Any] | RowError:
    try:
        features = Example.FromString(record).features.feature
    except Exception:  # protobuf's own error class differs between its implementations
        return RowError("is not a tf.Example")
    values: dict[str, Any] = {_EXAMPLES: b64_value(record)}
    for name, feature in features.items():
        kind = feature.WhichOneof("kind")
        many = [text_value(v) if kind == "bytes_list" else v for v in (getattr(feature, kind).value if kind else ())]
        values[name] = many[0] if len(many) == 1 else many
    return values
