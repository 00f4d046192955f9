"""Readers of files whose records are documents: JSON lines, CSV and TSV, Parquet, TFRecords, WikiExtractor's files.

Every reader yields (where, text): the location of the record for errors, and its text, or None if it has none.
"""

import csv
import json
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from bert_keras.data.tfrecord import Example, read_records
from bert_keras.errors import InputError
from components.io.csv_rows import csv_rows
from components.io.line_ranges import lines_between

_PARQUET_ROWS = 256
_TSV = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}


def read_jsonl(
    file: BinaryIO, source: str, text_field: str, start: int = 0, end: int | None = None
) -> Iterator[tuple[str, str | None]]:
    """One object per line, for the lines that begin in bytes [start, end)."""
    for number, (position, line) in enumerate(lines_between(file, start, end), 1):
        where = f"{source}, line {number}" if not start else f"{source}, the line at byte {position}"
        # Without the byte order mark, if the file has one.
        if content := line.decode("utf-8", "surrogateescape").removeprefix("\ufeff").strip():
            try:
                record = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{where}: is not JSON ({error}); each line must be an object") from error
            yield where, _field(record, where, text_field)


def _field(record: Any, where: str, text_field: str) -> str | None:
    if not isinstance(record, dict):
        raise InputError(f"{where}: is {type(record).__name__}, not an object; each line must be one")
    if text_field not in record:
        remedy = "name it with corpus.text_field, or set corpus.format=text"
        raise InputError(f"{where}: has no field {text_field!r}, but {_names(record)}; {remedy}")
    text = record[text_field]
    if text is not None and not isinstance(text, str):
        raise InputError(f"{where}: field {text_field!r} is {type(text).__name__}, not text; name another one")
    return text


def read_table(file: BinaryIO, source: str, text_field: str, kind: str) -> Iterator[tuple[str, str | None]]:
    """Rows after a header: "csv" with quotes, or "tsv" without quoting; None for a blank line."""
    header: list[str] = []
    for line, row in csv_rows(file, **(_TSV if kind == "tsv" else {})):
        where = f"{source}, line {line}"
        if isinstance(row, csv.Error):
            raise InputError(f"{where}: is not {kind.upper()} ({row}); correct it") from row
        is_blank = not "".join(row).strip()
        if header and not is_blank and len(row) != len(header):
            raise InputError(f"{where}: has {len(row)} columns, not the header's {len(header)}; correct it")
        if header:
            yield where, None if is_blank else row[header.index(text_field)]
        elif text_field in row:
            header = row
        else:
            raise InputError(
                f"{source}: has no column {text_field!r}, but {_names(row)}; name it with corpus.text_field"
            )


def read_parquet(file: BinaryIO, source: str, text_field: str) -> Iterator[tuple[str, str | None]]:
    """Values of a text column."""
    import pyarrow
    from pyarrow import parquet

    if not file.seekable():  # compressed, or in a tar: Parquet is read from its end
        with tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(file, whole)
            yield from read_parquet(whole, source, text_field)
        return
    try:
        table = parquet.ParquetFile(file)
    except pyarrow.ArrowException as error:
        raise InputError(f"{source}: is not Parquet ({str(error).splitlines()[0]}); give a whole file") from error
    if text_field not in (names := table.schema_arrow.names):
        raise InputError(f"{source}: has no column {text_field!r}, but {_names(names)}; name it with corpus.text_field")
    kind = table.schema_arrow.field(text_field).type
    if pyarrow.types.is_dictionary(kind):  # pandas' categories
        kind = kind.value_type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise InputError(f"{source}: column {text_field!r} is {kind}, not text; name another with corpus.text_field")
    number = 0
    try:
        for batch in table.iter_batches(_PARQUET_ROWS, columns=[text_field]):
            # As bytes, because pyarrow refuses a text that is not UTF-8 without naming its row.
            for text in batch.column(0).cast(pyarrow.binary()).to_pylist():
                yield f"{source}, row {number}", None if text is None else text.decode("utf-8", "surrogateescape")
                number += 1
    except (pyarrow.ArrowException, OSError) as error:
        problem = str(error).splitlines()[0]
        raise InputError(f"{source}, row {number}: is damaged ({problem}); give a whole file") from error


def read_tfrecords(file: BinaryIO, source: str, text_field: str) -> Iterator[tuple[str, str | None]]:
    """Bytes feature of tf.Examples; its values are lines."""
    try:
        for number, record in enumerate(read_records(file)):
            where = f"{source}, record {number}"
            try:
                features = Example.FromString(record).features.feature
            except Exception as error:  # protobuf's own error class differs between its implementations
                raise InputError(f"{where}: is not a tf.Example; give TFRecords of tf.Examples") from error
            if text_field not in features:
                raise InputError(
                    f"{where}: has no feature {text_field!r}, but {_names(features)}; name it with corpus.text_field"
                )
            values = features[text_field].bytes_list.value
            yield where, "\n".join(value.decode("utf-8", "surrogateescape") for value in values)
    except ValueError as error:
        raise InputError(f"{source}, {error}; give a whole file") from error


def read_wikiextractor(lines: Iterator[str], source: str) -> Iterator[str | None]:
    """Lines of `<doc ...>` title, text `</doc>` -> lines of text, with "" after each document; None is skipped."""
    opening = None
    for line in lines:
        if line.startswith("<doc ") and line.endswith(">"):
            opening = line
            yield ""
        elif line == "</doc>":
            opening = None
            yield ""
        elif line and opening is None:
            raise InputError(
                f"{source}: {line[:60]!r} is outside of <doc ...> and </doc>; --set corpus.format=text reads it"
            )
        else:
            yield line or None
    if opening is not None:
        raise InputError(f"{source}: the document {opening[:60]} has no </doc>: the file is cut off; give a whole one")


def _names(names) -> str:
    texts = sorted(map(str, names))
    return ", ".join(texts[:10]) + (", ..." if len(texts) > 10 else "") if texts else "none"
