"""Input files in ranges and their rows; each range becomes one output shard.

    {"text": "Well, yes", "id": 7}          a line of JSON
    text,id                                 CSV (RFC 4180) or TSV (no quoting), after a header; all values are text
    "Well, yes",7

is Row(1, {"text": "Well, yes", "id": 7}), and Row(2, {"text": "Well, yes", "id": "7"}) in CSV. A feature of a
tf.Example with one value is that value, with more a list; the column `examples` is the whole record, for signatures
that take it. Of Parquet, rows have the needed columns.
"""

import io
from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from pyarrow import parquet

from bert_keras.data.tfrecord import Example, read_records
from bert_keras.errors import InputError
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import SNIFFED_BYTES, ReadUnit, format_of, in_threads, input_errors, packed
from components.corpus_gen.settings import CorpusSettings
from components.io.compression import compression_of, decompressed, peekable
from components.io.line_ranges import lines_between
from components.io.shards import open_file, open_for_ranges
from components.task_example_gen.readers.records import BOM, RowError, by_name, check_repeated, csv_records, decoded
from components.task_example_gen.readers.table import json_object
from serving.api.json_tensors import b64_value, text_value

_FORMATS = ("jsonl", "csv", "tsv", "parquet", "tfrecord")
# Bytes of a range: a kill loses the work on one range of each worker, minutes at most; a remote store gets few files.
MIN_RANGE_BYTES, MAX_RANGE_BYTES, RANGES = 1 << 18, 8 << 20, 64
_PARQUET_ROWS = 256


class Row(NamedTuple):
    """A row; its number in its range, from 1, is that of its last line, or of the record in Parquet and TFRecords.

    Values are by column; None for a blank line, or the reason why there are none.
    """

    number: int
    values: dict[str, Any] | RowError | None


def plan(files: Sequence[InputFile]) -> list[list[ReadUnit]]:
    """Ranges of the files, in order; the number of workers does not change them. InputError: a file has another format.

    Uncompressed lines are divided at any line, Parquet at row groups, other files not at all; small files are combined.
    """
    size = min(MAX_RANGE_BYTES, max(MIN_RANGE_BYTES, sum(file.size for file in files) // RANGES))
    starts = dict(zip(files, in_threads(lambda file: _starts(file, size), files), strict=True))
    return packed(files, size, starts.__getitem__)


def read_rows(unit: ReadUnit, columns: Collection[str]) -> Iterator[Row]:
    """Rows of a range, one at a time; InputError if the file is damaged, or its header lacks one of the `columns`."""
    kind, _ = _kind(unit.path)
    with input_errors(unit.path), open_file(unit.path) as file:
        if kind == "parquet":
            yield from _parquet_rows(file, unit, columns)
        elif kind == "tfrecord":
            yield from _examples(decompressed(file, unit.path), unit.path)
        elif kind:
            yield from _lines(file, unit, kind, columns)


def _kind(path: str) -> tuple[str, bool]:
    """The format of a file, "" if it is empty, and whether it is compressed."""
    with input_errors(path), open_for_ranges(path) as file:
        content = peekable(file)
        compressed = compression_of(content.peek(8)[:8]) is not None
        head = decompressed(content, path).peek(SNIFFED_BYTES)[:SNIFFED_BYTES]
    kind = format_of(head, path, CorpusSettings()) if head else ""
    if head and kind not in _FORMATS:
        raise InputError(
            f"{path}: is not JSON lines, CSV, TSV, Parquet or TFRecords by its name; "
            "give it the extension .jsonl, .csv, .tsv, .parquet or .tfrecord"
        )
    return kind, compressed


def _starts(file: InputFile, size: int) -> Sequence[int]:
    kind, compressed = _kind(file.path)
    if compressed or file.size <= size or kind == "tfrecord":
        return (0,)
    if kind != "parquet":
        return range(0, file.size, size)
    with input_errors(file.path), open_file(file.path) as content:
        starts = _group_starts(parquet.ParquetFile(content))
    # The first row group at or after each multiple of `size`.
    return sorted({0, *(next((place for place in starts if place >= low), 0) for low in range(size, file.size, size))})


def _group_starts(table: parquet.ParquetFile) -> list[int]:
    columns = [table.metadata.row_group(group).column(0) for group in range(table.num_row_groups)]
    return [column.dictionary_page_offset or column.data_page_offset for column in columns]


def _lines(file: BinaryIO, unit: ReadUnit, kind: str, columns: Collection[str]) -> Iterator[Row]:
    header: list[str] = []
    if kind != "jsonl":
        with open_file(unit.path) as whole:
            _, first = next(lines_between(decompressed(whole, unit.path), quoted=kind == "csv"))
        try:
            header = _cells(first.removeprefix(BOM), kind)
        except RowError as error:
            raise InputError(f"{unit.path}: its first line is no header: {error}; correct it") from error
        _check_columns(unit.path, header, columns)
    number = 0
    # Only whole files are compressed.
    content = file if unit.start or unit.end is not None else decompressed(file, unit.path)
    for position, line in lines_between(content, unit.start, unit.end, quoted=kind == "csv"):
        number += line.count(b"\n") + (not line.endswith(b"\n"))
        if not line.strip() or (header and not position):
            yield Row(number, None)
            continue
        try:
            text = line.removeprefix(BOM) if not position else line
            yield Row(number, json_object(text) if kind == "jsonl" else dict(by_name(_cells(text, kind), header)))
        except RowError as error:
            yield Row(number, error)


def _cells(line: bytes, kind: str) -> list[str]:
    if kind == "tsv":
        return decoded(line.rstrip(b"\r\n")).split("\t")
    record, *more = [record for _, record in csv_records(io.BytesIO(line))] or [RowError("is blank")]
    if isinstance(record, Exception):
        raise record
    if more:
        raise RowError("has a double quote inside a value without quotes")
    return record


def _check_columns(path: str, header: Sequence[str], columns: Collection[str]) -> None:
    if missing := sorted({*columns} - {*header}):
        raise InputError(
            f"{path}: has no column {missing[0]!r}, but {', '.join(map(repr, header))}; "
            "name it with --column INPUT=COLUMN"
        )
    check_repeated(path, header, columns)


def _parquet_rows(file: BinaryIO, unit: ReadUnit, columns: Collection[str]) -> Iterator[Row]:
    table = parquet.ParquetFile(file)
    _check_columns(unit.path, table.schema_arrow.names, columns)
    end = unit.end
    groups = [n for n, at in enumerate(_group_starts(table)) if unit.start <= at and (end is None or at < end)]
    batches = table.iter_batches(_PARQUET_ROWS, row_groups=groups, columns=[*columns])
    rows = (batch.slice(row, 1) for batch in batches for row in range(batch.num_rows))
    for number, row in enumerate(rows, 1):
        try:
            yield Row(number, row.to_pylist()[0])
        except UnicodeDecodeError:
            yield Row(number, RowError("is not UTF-8"))


def _examples(file: BinaryIO, path: str) -> Iterator[Row]:
    try:
        for number, record in enumerate(read_records(file), 1):
            yield Row(number, _features(record))
    except ValueError as error:
        raise InputError(f"{path}, {error}; give a whole file") from error


def _features(record: bytes) -> dict[str, Any] | RowError:
    try:
        features = Example.FromString(record).features.feature
    except Exception:  # protobuf's own error class differs between its implementations
        return RowError("is not a tf.Example")
    values: dict[str, Any] = {"examples": b64_value(record)}
    for name, feature in features.items():
        kind = feature.WhichOneof("kind")
        many = [text_value(v) if kind == "bytes_list" else v for v in (getattr(feature, kind).value if kind else ())]
        values[name] = many[0] if len(many) == 1 else many
    return values
