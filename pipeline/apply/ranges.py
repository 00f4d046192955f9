"""Divides input files into ranges, each of which becomes one output shard."""

from __future__ import annotations

from collections.abc import Sequence

from pyarrow import parquet

from bert_keras.errors import InputError
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import SNIFFED_BYTES, ReadUnit, format_of, in_threads, packed
from components.corpus_gen.settings import CorpusSettings
from components.io.compression import compression_of, decompressed
from components.io.shards import open_file, open_for_ranges

FORMATS = ("jsonl", "csv", "tsv", "parquet", "tfrecord")
# Bytes of a range: a kill loses the work on one range of each worker, minutes at most; a remote store gets few files.
MIN_RANGE_BYTES, MAX_RANGE_BYTES, RANGES = 1 << 18, 8 << 20, 64


def plan(files: Sequence[InputFile]) -> list[list[ReadUnit]]:
    """Ranges of the files, in order; the number of workers does not change them.

    Uncompressed lines are divided at any line, Parquet at row groups, other files not at all; small files are combined.

    Raises:
        InputError: a file has none of `FORMATS`; names it.
    """
    size = min(MAX_RANGE_BYTES, max(MIN_RANGE_BYTES, sum(file.size for file in files) // RANGES))
    starts = dict(zip([file.path for file in files], in_threads(lambda file: _starts(file, size), files), strict=True))
    return packed(files, size, lambda file: starts[file.path])


def kind_of(path: str) -> tuple[str, bool]:
    """The format of a file, and whether it is compressed; "" for an empty file.

    Raises:
        InputError: it has none of `FORMATS`.
    """
    with open_for_ranges(path) as file:
        content = decompressed(file, path)
        head = content.peek(SNIFFED_BYTES)[:SNIFFED_BYTES]
    with open_for_ranges(path) as file:
        compressed = compression_of(file.read(8)) is not None
    kind = format_of(head, path, CorpusSettings()) if head else ""
    if head and kind not in FORMATS:
        raise InputError(
            f"{path}: is not JSON lines, CSV, TSV, Parquet or TFRecords by its name; "
            "give it the extension .jsonl, .csv, .tsv, .parquet or .tfrecord"
        )
    return kind, compressed


def _starts(file: InputFile, size: int) -> Sequence[int]:
    kind, compressed = kind_of(file.path)
    if compressed or file.size <= size or kind == "tfrecord":
        return (0,)
    if kind != "parquet":
        return range(0, file.size, size)
    with open_file(file.path) as content:
        starts = group_starts(parquet.ParquetFile(content))
    # The first row group at or after each multiple of `size`.
    return sorted({0, *(next((at for at in starts if at >= low), 0) for low in range(size, file.size, size))})


def group_starts(table: parquet.ParquetFile) -> list[int]:
    """Position of each row group in its file."""
    columns = [table.metadata.row_group(group).column(0) for group in range(table.num_row_groups)]
    return [column.dictionary_page_offset or column.data_page_offset for column in columns]
