"""Reads documents from the user's files: any compression, archive and format."""

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple, TypeVar

from bert_keras.data.tfrecord import is_tfrecord
from bert_keras.errors import InputError
from components.corpus_gen.plain_text import assemble, read_lines, read_text, text_lines
from components.corpus_gen.records import read_jsonl, read_parquet, read_table, read_tfrecords, read_wikiextractor
from components.corpus_gen.settings import CorpusSettings
from components.io.archives import ARCHIVE_ERRORS, archive_kind, members
from components.io.compression import READ_ERRORS, compression_of, decompressed, extension, peekable
from components.io.shards import is_hidden, open_file, open_for_ranges

# Counts made while reading files; corpus.json has the sums.
COUNTS = {
    "read_bytes": "bytes of plain text, decompressed",
    "read_documents": "documents found",
    "empty_documents": "records without text",
    "split_documents": "documents longer than corpus.max_document_characters, split",
    "split_parts": "parts of split documents, but for the first; a part is a document from here on",
    "invalid_utf8_bytes": "bytes that are not UTF-8, replaced by U+FFFD",
    "nul_characters": "NUL characters removed",
    "nul_documents": "documents dropped because they are NUL characters",
    "skipped_members": "members of archives that are hidden, not text, or archives themselves",
}
# Bytes of a unit of work: large enough to be efficient, small enough to be sorted in memory (see `work_bytes`) and to
# give many units to distribute.
MIN_WORK_BYTES, MAX_WORK_BYTES = 1 << 20, 32 << 20
PIECES_OF_WORK = 64
# Size of a file's head, enough to tell text from other content.
SNIFFED_BYTES = 1 << 16
# UTF-8 text has no invalid bytes; a file with a larger share of them has another encoding, or is not text.
# German in Latin-1 has twice as many, French four times.
MAX_STRANGE_SHARE = 0.01
_FORMATS = {f".{name}": name for name in ("jsonl", "csv", "tsv", "parquet", "tfrecord")}
_FORMATS |= {".ndjson": "jsonl", ".json": "jsonl", ".tfrecords": "tfrecord"}
# Requests to a store mostly wait. Results are kept for so many items at a time.
_THREADS, _AT_A_TIME, _IN_A_CALL = 32, 1 << 14, 16
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class RawDocument(NamedTuple):
    """A document as read from a file, or "archive.zip!member": stripped, non-blank lines, at least one."""

    source: str
    lines: list[str]


@dataclasses.dataclass(frozen=True)
class ReadUnit:
    """The documents in bytes [start, end) of a divisible file; end None: to its end."""

    path: str
    start: int = 0
    end: int | None = None
    source_name: str = ""


class NotText(InputError):
    """A file that has no reader."""


def work_bytes(settings: CorpusSettings) -> int:
    """Maximum number of bytes that a worker reads and sorts at a time: memory for a bucket's tokens suffices."""
    return max(MAX_WORK_BYTES, 2 * settings.bucket_bytes)


def read_units(files: Sequence, settings: CorpusSettings) -> list[list[ReadUnit]]:
    """Divide large files (`inputs.InputFile`), where none must be read whole for it, and combine small ones."""
    size = min(work_bytes(settings), max(MIN_WORK_BYTES, sum(file.size for file in files) // PIECES_OF_WORK))
    large = [file.path for file in files if file.size > size]
    cut = dict(zip(large, in_threads(lambda path: _can_be_cut(path, settings), large), strict=True))
    return packed(files, size, lambda file: range(0, file.size, size) if cut.get(file.path) else (0,))


def packed(files: Iterable, size: int, starts_of: Callable[[Any], Sequence[int]]) -> list[list[ReadUnit]]:
    """Units of work of about `size` bytes, in the order of the files, divided at the positions `starts_of(file)`."""
    pieces: list[list[ReadUnit]] = [[]]
    filled = 0
    for file in files:
        starts = [*starts_of(file)]
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            unit_size = (file.size if end is None else end) - start
            if pieces[-1] and filled + unit_size > size:
                pieces.append([])
                filled = 0
            pieces[-1].append(ReadUnit(file.path, start, end, file.source_name))
            filled += unit_size
    return pieces


def in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """Apply a function to all items in threads, in order; raises the first item's exception, too."""

    def call(batch: Sequence[_Item]) -> list[_Result]:
        return [function(item) for item in batch]

    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(items), _AT_A_TIME):
            part = items[start : start + _AT_A_TIME]
            many = max(1, min(_IN_A_CALL, len(part) // _THREADS))
            for results in pool.map(call, [part[i : i + many] for i in range(0, len(part), many)]):
                yield from results


def _can_be_cut(path: str, settings: CorpusSettings) -> bool:
    with open_for_ranges(path) as file:
        head = peekable(file).peek(SNIFFED_BYTES)
    if compression_of(head) or archive_kind(head):
        return False
    kind = format_of(head, path, settings)
    return kind == "jsonl" or (kind == "text" and settings.documents == "blank_lines")


def read_unit(
    unit: ReadUnit, settings: CorpusSettings, counts: Counter[str], opened: Callable[[str], BinaryIO] = open_file
) -> Iterator[RawDocument]:
    """Documents of a unit, in order; one at a time is in memory. COUNTS are added to `counts`.

    InputError: the file is damaged or not text, or a record is malformed; names file and record.
    """
    with input_errors(unit.path), opened(unit.path) as file:
        if unit.start or unit.end is not None:
            file.seek(unit.start)
            yield from _read_content(file, unit.path, settings, counts, unit)
        else:
            yield from _read_file(file, unit.path, settings, counts)


@contextlib.contextmanager
def input_errors(path: str) -> Iterator[None]:
    """Convert errors of opening or reading a file to InputError with a remedy."""
    try:
        yield
    except (*READ_ERRORS, *ARCHIVE_ERRORS) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: cannot be read ({reason}); give a readable, whole file") from error


def _read_file(file: BinaryIO, path: str, settings: CorpusSettings, counts: Counter[str]) -> Iterator[RawDocument]:
    content = decompressed(file, path)
    if (kind := archive_kind(content.peek(512)[:512])) is None:
        yield from _read_content(content, path, settings, counts)
        return
    for name, member in members(content, kind, path):
        source = f"{path}!{name}"
        inner = decompressed(member, source)
        if not (head := inner.peek(512)[:512]):
            continue
        try:
            if archive_kind(head) or is_hidden(name):
                raise NotText(source)
            yield from _read_content(inner, source, settings, counts)
        except NotText:
            # Other content of an archive is not an error of the user.
            counts["skipped_members"] += 1


def _read_content(
    file: BinaryIO, source: str, settings: CorpusSettings, counts: Counter[str], unit: ReadUnit | None = None
) -> Iterator[RawDocument]:
    """Documents of a decompressed file that is not an archive, or of a unit of it."""
    if unit is None:
        unit = ReadUnit(source)
        head = file.peek(SNIFFED_BYTES)[:SNIFFED_BYTES]  # type: ignore[attr-defined]
    else:
        with open_for_ranges(unit.path) as whole:
            head = peekable(whole).peek(SNIFFED_BYTES)[:SNIFFED_BYTES]
    if not head:
        return
    kind = format_of(head, source, settings)
    if kind == "text":
        _check_text(head, source)
        documents = read_text(file, settings, counts, unit.start, unit.end)
    elif kind == "wikiextractor":
        lines = read_lines(file, settings.max_document_characters, counts, 0, None)
        documents = assemble(read_wikiextractor(lines, source), settings, counts)
    else:
        documents = _documents_of_records(file, source, kind, settings, counts, unit)
    for document in documents:
        yield RawDocument(source, document)


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
    for _, text in records:
        lines = list(text_lines(text or "", settings.max_document_characters))
        if not lines:
            counts["empty_documents"] += 1
        yield from assemble(lines, settings, counts)


def format_of(head: bytes, source: str, settings: CorpusSettings) -> str:
    """Format of a file, from the setting, its name, or its first bytes: jsonl, csv, tsv, parquet, tfrecord, ..."""
    if settings.format != "auto":
        return settings.format
    if named := _FORMATS.get(extension(source)):
        return named
    if head.startswith(b"PAR1"):
        return "parquet"
    if is_tfrecord(head):
        return "tfrecord"
    first, line_feed, _ = head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")
    if first.startswith(b"<doc ") and first.rstrip().endswith(b">"):
        return "wikiextractor"
    with contextlib.suppress(ValueError, RecursionError):
        is_cut = not line_feed and len(head) >= SNIFFED_BYTES
        if first.startswith(b'{"' if is_cut else b"{") and (is_cut or json.loads(first)):
            return "jsonl"
    return "text"


def _check_text(head: bytes, source: str) -> None:
    """Refuse content that is not UTF-8 text; a few invalid bytes are common in text."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotText(f"{source}: is UTF-16, by its byte order mark; convert it to UTF-8")
    nuls = head.count(b"\0")
    if nuls > MAX_STRANGE_SHARE * len(head):
        raise NotText(f"{source}: is not text ({nuls:,} NUL bytes in its first {len(head):,}); give UTF-8 text")
    # The head may end within a character: at most three bytes.
    invalid = head.decode("utf-8", "replace").count("\ufffd") - head.count("\ufffd".encode())
    if invalid - 1 > MAX_STRANGE_SHARE * len(head):
        raise NotText(f"{source}: is not UTF-8 text ({invalid:,} bad bytes in its first {len(head):,}); convert it")
