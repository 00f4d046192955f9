"""The user's files -> documents: whatever they are compressed with, archived in and formatted as."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from bert_keras.errors import InputError
from components.corpus_gen.archives import ARCHIVE_ERRORS, archive_kind, members
from components.corpus_gen.compression import READ_ERRORS, compression_of, decompressed, peekable
from components.corpus_gen.plain_text import assemble, read_lines, read_text, text_lines
from components.corpus_gen.records import (
    read_jsonl,
    read_parquet,
    read_table,
    read_tfrecords,
    read_wikiextractor,
)
from components.corpus_gen.settings import CorpusSettings
from components.shards import open_file
from components.tfrecord import is_tfrecord

# What is counted of files while they are read; corpus.json has the sums.
COUNTS = {
    "read_bytes": "bytes of plain text, decompressed",
    "read_documents": "documents found",
    "empty_documents": "records without text",
    "split_documents": "documents longer than corpus.max_document_characters, cut into several",
    "invalid_utf8_bytes": "bytes that are not UTF-8, replaced by U+FFFD",
    "invalid_utf8_dropped": "documents dropped because they are not UTF-8",
    "nul_characters": "NUL characters left out",
    "skipped_members": "members of archives that are not text, or archives themselves",
}
# Bytes of a piece of work: enough to be worth one, little enough to be sorted in memory (see `work_bytes`); and many
# pieces, to be spread.
MIN_WORK_BYTES, MAX_WORK_BYTES = 1 << 20, 32 << 20
PIECES_OF_WORK = 64
# Enough of a file's head to tell text from something else.
SNIFFED_BYTES = 1 << 16
# Text in UTF-8 has no such bytes; what has a larger share of them is another encoding, or no text. German in Latin-1
# has twice as many, French four times.
MAX_STRANGE_SHARE = 0.01
_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")


class RawDocument(NamedTuple):
    """A document as it was found.

    Attributes:
        source: the file's path; "archive.zip!member" in an archive.
        lines: stripped, none blank, at least one.
    """

    source: str
    lines: list[str]


@dataclasses.dataclass(frozen=True)
class ReadUnit:
    """A piece of reading: the documents of bytes [start, end) of a file that can be cut; end None: to its end."""

    path: str
    start: int = 0
    end: int | None = None


class NotText(InputError):
    """A file that no reader takes."""


def work_bytes(settings: CorpusSettings) -> int:
    """Most bytes that a worker reads and sorts at a time: MAX_WORK_BYTES, or more where buckets are large.

    Each bucket looks into each sorted run. Who has memory for a large bucket's tokens has it for a larger run.
    """
    return max(MAX_WORK_BYTES, 2 * settings.bucket_bytes)


def read_units(files: Sequence, settings: CorpusSettings) -> list[list[ReadUnit]]:
    """Pieces of work of about the same size, for files (`inputs.InputFile`).

    Large files are cut, where that needs no look at all of them; small ones are put together.
    """
    total = sum(file.size for file in files)
    size = min(work_bytes(settings), max(MIN_WORK_BYTES, total // PIECES_OF_WORK))
    pieces: list[list[ReadUnit]] = [[]]
    filled = 0
    for file in files:
        starts = range(0, file.size, size) if file.size > size and _can_be_cut(file.path, settings) else (0,)
        for start in starts:
            last = start == starts[-1]
            unit_size = min(size, file.size - start) if len(starts) > 1 else file.size
            if pieces[-1] and filled + unit_size > size:
                pieces.append([])
                filled = 0
            pieces[-1].append(ReadUnit(file.path, start, None if last else start + size))
            filled += unit_size
    return pieces


def _can_be_cut(path: str, settings: CorpusSettings) -> bool:
    with open_file(path) as file:
        head = peekable(file).peek(SNIFFED_BYTES)
    if compression_of(head) or archive_kind(head):
        return False
    kind = _format(head, path, settings)
    return kind == "jsonl" or (kind == "text" and settings.documents == "blank_lines")


def read_unit(unit: ReadUnit, settings: CorpusSettings, counts: Counter[str]) -> Iterator[RawDocument]:
    """The documents of a unit, in order; memory is bounded by one of them.

    Args:
        counts: COUNTS are added to it.

    Raises:
        InputError: the file is damaged, not text, or a record is not what it should be; names file and record.
    """
    try:
        with open_file(unit.path) as file:
            if unit.start or unit.end is not None:
                file.seek(unit.start)
                yield from _read_content(file, unit.path, settings, counts, unit)
            else:
                yield from _read_file(file, unit.path, settings, counts)
    except (*READ_ERRORS, *ARCHIVE_ERRORS) as error:
        raise cannot_be_read(unit.path, error) from error


def cannot_be_read(path: str, error: Exception) -> InputError:
    """What to tell of an error that opening or reading a file raises."""
    reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(f"{path}: cannot be read ({reason}); give a readable, whole file")


def _read_file(file: BinaryIO, path: str, settings: CorpusSettings, counts: Counter[str]) -> Iterator[RawDocument]:
    content = decompressed(file, path)
    kind = archive_kind(content.peek(512)[:512])
    if kind is None:
        yield from _read_content(content, path, settings, counts)
        return
    for name, member in members(content, kind, path):
        source = f"{path}!{name}"
        inner = decompressed(member, source)
        head = inner.peek(512)[:512]
        if not head:
            continue
        try:
            if archive_kind(head):
                raise NotText(source)
            yield from _read_content(inner, source, settings, counts)
        except NotText:
            # What else lies in an archive is no mistake of the user's.
            counts["skipped_members"] += 1


def _read_content(
    file: BinaryIO, source: str, settings: CorpusSettings, counts: Counter[str], unit: ReadUnit | None = None
) -> Iterator[RawDocument]:
    """The documents of a decompressed file that is no archive, or of a unit of it."""
    if unit is None:
        unit = ReadUnit(source)
        head = file.peek(SNIFFED_BYTES)[:SNIFFED_BYTES]  # type: ignore[attr-defined]
    else:
        with open_file(unit.path) as whole:
            head = peekable(whole).peek(SNIFFED_BYTES)[:SNIFFED_BYTES]
    if not head:
        return
    kind = _format(head, source, settings)
    if kind == "text":
        _check_text(head, source)
        documents = read_text(file, source, settings, counts, unit.start, unit.end)
    elif kind == "wikiextractor":
        lines = read_lines(file, settings.max_document_characters, counts, 0, None)
        documents = assemble(read_wikiextractor(lines, source), source, settings, counts)
    else:
        documents = _documents_of_records(file, source, kind, settings, counts, unit)
    for lines_of_one in documents:
        yield RawDocument(source, lines_of_one)


def _documents_of_records(
    file: BinaryIO, source: str, kind: str, settings: CorpusSettings, counts: Counter[str], unit: ReadUnit
) -> Iterator[list[str]]:
    field = settings.text_field
    if kind == "jsonl":
        records = read_jsonl(file, source, field, unit.start, unit.end)
    elif kind == "parquet":
        records = read_parquet(file, source, field)
    elif kind == "tfrecord":
        records = read_tfrecords(file, source, field)
    else:
        records = read_table(file, source, field, kind)
    for where, text in records:
        lines = list(text_lines(text or "", settings.max_document_characters))
        if not lines:
            counts["empty_documents"] += 1
        yield from assemble(lines, where, settings, counts)


def _format(head: bytes, source: str, settings: CorpusSettings) -> str:
    """The format of a file, by the setting, its name, or its first bytes."""
    if settings.format != "auto":
        return settings.format
    name, extension = os.path.splitext(source)
    if extension in _COMPRESSED:
        extension = os.path.splitext(name)[1]
    if extension.lower() in _FORMATS:
        return _FORMATS[extension.lower()]
    if head.startswith(b"PAR1"):
        return "parquet"
    if is_tfrecord(head):
        return "tfrecord"
    first = head.lstrip(b"\xef\xbb\xbf \r\n").split(b"\n", 1)[0]
    if first.startswith(b"<doc ") and first.rstrip().endswith(b">"):
        return "wikiextractor"
    return "jsonl" if first.startswith(b"{") and _is_record(first, settings.text_field) else "text"


def _is_record(line: bytes, text_field: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and text_field in record


def _check_text(head: bytes, source: str) -> None:
    """Refuses what is not text in UTF-8; a few strange bytes are in much that is."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotText(f"{source}: is UTF-16, by its byte order mark; convert it to UTF-8")
    nuls = head.count(b"\0")
    if nuls > MAX_STRANGE_SHARE * len(head):
        raise NotText(f"{source}: is not text ({nuls:,} NUL bytes in its first {len(head):,}); give UTF-8 text")
    # A character may be cut at the end of the head: at most three bytes.
    invalid = head.decode("utf-8", "replace").count("\ufffd") - head.count("\ufffd".encode())
    if invalid - 1 > MAX_STRANGE_SHARE * len(head):
        raise NotText(f"{source}: is not UTF-8 text ({invalid:,} bad bytes in its first {len(head):,}); convert it")
