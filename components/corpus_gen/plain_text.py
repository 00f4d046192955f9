"""Splits plain text into documents, in constant memory, starting at any byte of a file; and documents into segments.

A file can be cut anywhere into ranges that are read independently. Documents end at blank lines. A range [start, end)
contains the documents after the first blank line that begins at or after `start`, up to the first blank line that
begins at or after `end`; the first range begins with the file. So each document is in exactly one range, and the cuts
do not depend on the text before them.
"""

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from components.corpus_gen.settings import CorpusSettings

BLOCK_BYTES = 1 << 20
# The sentence splitter's time grows faster than the text (quadratically for Chinese), so it gets pieces.
SPLITTER_CHARACTERS = 4096
BYTE_ORDER_MARK = "\ufeff"
# Code points that `surrogateescape` substitutes for bytes that are not UTF-8; JSON can contain others as escapes.
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_BLANKS_BEYOND_ASCII = re.compile(r"[^\S\x00-\x7f]")
_LINE_END = re.compile(r"\r\n|\r|\n")


class TextDecoder:
    """Decodes blocks of bytes, with "\\n" for every line end; a byte that is not UTF-8 becomes a lone surrogate."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._carriage_return = ""

    def __call__(self, block: bytes, final: bool = False) -> str:
        text = self._carriage_return + self._decoder.decode(block, final)
        self._carriage_return = ""
        if "\r" in text:
            begun = self._decoder.getstate()[0]  # first bytes of an incomplete character
            if text.endswith("\r") and not final and not begun:  # a line feed may follow
                text, self._carriage_return = text[:-1], "\r"
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text


def read_text(
    file: BinaryIO, settings: CorpusSettings, counts: Counter[str], start: int = 0, end: int | None = None
) -> Iterator[list[str]]:
    """Documents of bytes [start, end) of plain text, as lists of lines (`assemble`); `file` is at `start`."""
    lines: Iterator[str | None] = read_lines(file, settings.max_document_characters, counts, start, end)
    if settings.documents == "files":
        lines = (line or None for line in lines)
    yield from assemble(lines, settings, counts)


def assemble(lines: Iterable[str | None], settings: CorpusSettings, counts: Counter[str]) -> Iterator[list[str]]:
    """Assemble stripped lines to documents, cut above the maximum length; "" ends a document, None is skipped."""
    document: list[str] = []
    size, limit, continued = 0, settings.max_document_characters, False

    def finished() -> Iterator[list[str]]:
        counts["split_parts" if continued else "read_documents"] += 1
        if mended := mend(document, counts):
            yield mended

    for line in lines:
        if line:
            if size + len(line) > limit and document:
                yield from finished()
                counts["split_documents"] += not continued
                document, size, continued = [], 0, True
            document.append(line)
            size += len(line)
        elif document and line is not None:
            yield from finished()
            document, size, continued = [], 0, False
    if document:
        yield from finished()


def text_lines(text: str, limit: int) -> Iterator[str]:
    """Stripped, non-blank lines of a text in memory; lines longer than `limit` are cut."""
    for line in _LINE_END.split(text):
        yield from _pieces(line, limit)


def mend(document: list[str], counts: Counter[str]) -> list[str]:
    """The document without NULs, and with U+FFFD for bytes that are not UTF-8; empty if nothing remains."""
    text = "\n".join(document)
    if "\0" in text:
        counts["nul_characters"] += text.count("\0")
        text = text.replace("\0", "")
        if not text.strip():
            counts["nul_documents"] += 1
    elif text.isascii():
        return document
    try:
        text.encode()
    except UnicodeEncodeError:
        text, bad = _NOT_UTF8.subn("\ufffd", text)
        counts["invalid_utf8_bytes"] += bad
    return [stripped for line in text.split("\n") if (stripped := line.strip())]


def read_lines(file: BinaryIO, limit: int, counts: Counter[str], start: int, end: int | None) -> Iterator[str]:
    """Stripped lines of a range from its first document on, blank ones as ""; long lines are cut at `limit`."""
    decode = TextDecoder()
    position, started, at_beginning = start, start == 0, start == 0
    inside_line = start > 0 and not _at_line_start(file, start)
    carry, carry_has_text, past_end = "", False, False  # for the line begun in the previous block
    while True:
        size = BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position)
        # Only the rest of the last document lies past the end: usually little.
        block = file.read(size if size > 0 else BLOCK_BYTES // 16)
        position += len(block)
        counts["read_bytes"] += len(block)
        text = decode(block, final=not block)
        if at_beginning and text:
            text, at_beginning = text.removeprefix(BYTE_ORDER_MARK), False
        *lines, remainder = text.split("\n")
        for line in lines:
            if carry:
                line, carry = carry + line, ""
            stripped = line.strip()
            if inside_line:
                inside_line = False
            elif stripped:
                if started:
                    yield from _pieces(stripped, limit)
            elif not carry_has_text:
                if past_end:
                    return
                started = True
                yield ""
            carry_has_text = False
            past_end = end is not None and position > end
        carry = (carry + remainder).lstrip()
        while len(carry) > limit:
            piece, carry = _cut(carry, limit)
            carry_has_text = True
            if started and not inside_line:
                yield piece
        if not block:
            if started and not inside_line and (stripped := carry.strip()):
                yield stripped
            return
        if position == end:
            past_end = block.endswith(b"\n")  # a line begins exactly at the end
        text_at_end = past_end or inside_line or carry_has_text or carry.strip()
        if not started and end is not None and position >= end and text_at_end:
            return  # No blank line begins in the range: it is all part of an earlier document.


def _at_line_start(file: BinaryIO, start: int) -> bool:
    """Return whether a line begins at byte `start`; leaves the file at this position."""
    file.seek(start - 1)
    before, after = file.read(1), file.read(1)
    file.seek(start)
    return before == b"\n" or (before == b"\r" and after != b"\n")


def _pieces(line: str, limit: int) -> Iterator[str]:
    """A line in stripped pieces of at most `limit` characters, without blank ones, which would end a document."""
    line = line.strip()
    while len(line) > limit:
        piece, line = _cut(line, limit)
        yield piece
    if line:
        yield line


def _cut(line: str, limit: int) -> tuple[str, str]:
    """First piece and remainder of a line (or its beginning) above `limit` characters, both stripped on the left."""
    # Only these characters matter, so that a line is cut the same way as a whole and while being read.
    window = line[: limit + 1]
    end = limit
    if window[-1].isspace():  # The piece ends with a complete word.
        end = limit + 1
    elif len(words := window.rsplit(None, 1)) == 2:
        end -= len(words[1]) - 1
    return window[:end].rstrip(), line[end:].lstrip()


def segment(lines: list[str], settings: CorpusSettings) -> list[str]:
    """Segments of one document: its lines, or its sentences."""
    if settings.segments == "lines":
        return lines
    return [s for sentence in sentences(" ".join(lines), settings.language) if (s := sentence.strip())]


def sentences(text: str, language: str) -> list[str]:
    """Sentences of a text with the blanks around them: together they are the text."""
    from sentencex import segment as split

    # sentencex 1.0 fails on a capital letter, a blank beyond ASCII and a full stop: "vitamin C\u00a0."
    plain = _BLANKS_BEYOND_ASCII.sub(" ", text)
    start, whole = 0, []
    while len(text) - start > SPLITTER_CHARACTERS:
        piece = plain[start : start + SPLITTER_CHARACTERS]
        complete = list(split(language, piece))
        if len(complete) > 1:
            # The last sentence may continue in the next piece.
            complete.pop()
        else:
            # A sentence without an end is cut at a blank.
            complete = [piece[: piece.rfind(" ", 1) + 1 or len(piece)]]
        whole += complete
        start += sum(map(len, complete))
    ends = itertools.accumulate(map(len, [*whole, *split(language, plain[start:])]), initial=0)
    return [text[start:end] for start, end in itertools.pairwise(ends)]
