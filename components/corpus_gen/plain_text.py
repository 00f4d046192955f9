"""Plain text -> documents, in constant memory, from any byte of a file on.

A file can be cut anywhere into stretches that are read apart. Documents end at blank lines. A stretch [start, end)
holds those after the first blank line that begins at or after `start`, up to the first blank line that begins at or
after `end`; the first stretch begins with the file. So each document is in exactly one, and finding the cuts needs no
look at what lies before.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from bert_keras.errors import InputError
from components.corpus_gen.settings import CorpusSettings

BLOCK_BYTES = 1 << 20
BYTE_ORDER_MARK = "\ufeff"
# What `surrogateescape` makes of bytes that are not UTF-8; JSON can spell others out.
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n|\r|\n")


class TextDecoder:
    """Blocks of bytes -> text with "\\n" for every line end; a byte that is not UTF-8 becomes a lone surrogate."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._carriage_return = ""

    def __call__(self, block: bytes, final: bool = False) -> str:
        text = self._carriage_return + self._decoder.decode(block, final)
        self._carriage_return = ""
        if "\r" in text:
            begun = self._decoder.getstate()[0]  # the first bytes of another character
            if text.endswith("\r") and not final and not begun:  # a line feed may follow
                text, self._carriage_return = text[:-1], "\r"
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text


def read_text(
    file: BinaryIO, source: str, settings: CorpusSettings, counts: Counter[str], start: int = 0, end: int | None = None
) -> Iterator[list[str]]:
    """The documents of a stretch of plain text, as their lines; see `assemble`.

    Args:
        file: at byte `start`.
        start, end: the stretch, in bytes; None: to the end of the file.
    """
    lines: Iterator[str | None] = read_lines(file, settings.max_document_characters, counts, start, end)
    if settings.documents == "files":
        lines = (line or None for line in lines)
    yield from assemble(lines, source, settings, counts)


def assemble(
    lines: Iterable[str | None], source: str, settings: CorpusSettings, counts: Counter[str]
) -> Iterator[list[str]]:
    """Lines -> documents, cut where they are longer than `max_document_characters`, mended by `invalid_utf8`.

    Args:
        lines: stripped; "" ends a document; None is passed over.
    """
    document: list[str] = []
    size, limit, continued = 0, settings.max_document_characters, False

    def finished() -> Iterator[list[str]]:
        counts["read_documents"] += not continued
        mended = mend(document, source, settings, counts)
        if mended:
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
    """The stripped lines of a text in memory, without blank ones; longer ones than `limit` in pieces."""
    for line in _LINE_END.split(text):
        yield from _pieces(line, limit)


def mend(document: list[str], source: str, settings: CorpusSettings, counts: Counter[str]) -> list[str]:
    """The document without NULs and lone surrogates; empty if it is dropped, or if nothing is left.

    Raises:
        InputError: it is not UTF-8, and that is to fail; names the file and the document's beginning.
    """
    text = "\n".join(document)
    if "\0" in text:
        counts["nul_characters"] += text.count("\0")
        text = text.replace("\0", "")
    elif text.isascii():
        return document
    try:
        text.encode()
    except UnicodeEncodeError as error:
        if settings.invalid_utf8 == "fail":
            raise InputError(
                f"{source}: not UTF-8 in the document that begins {document[0][:40]!r}, "
                f"after {text[max(0, error.start - 20) : error.start]!r}; "
                "convert the file, or --set corpus.invalid_utf8=replace"
            ) from error
        if settings.invalid_utf8 == "drop":
            counts["invalid_utf8_dropped"] += 1
            return []
        text, bad = _NOT_UTF8.subn("\ufffd", text)
        counts["invalid_utf8_bytes"] += bad
    return [stripped for line in text.split("\n") if (stripped := line.strip())]


def read_lines(file: BinaryIO, limit: int, counts: Counter[str], start: int, end: int | None) -> Iterator[str]:
    """The stretch's stripped lines from its first document on, blank ones as ""; long ones in pieces of `limit`."""
    decode = TextDecoder()
    position, started, at_beginning = start, start == 0, start == 0
    inside_line = start > 0 and not _at_line_start(file, start)
    carry, carry_has_text, past_end = "", False, False  # of the line that the block before has begun
    while True:
        size = BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position)
        # Past its end lies what its last document needs: seldom much.
        block = file.read(size if size > 0 else BLOCK_BYTES // 16)
        position += len(block)
        counts["read_bytes"] += len(block)
        text = decode(block, final=not block)
        if at_beginning and text:
            text, at_beginning = text.removeprefix(BYTE_ORDER_MARK), False
        *lines, rest = text.split("\n")
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
        carry += rest
        while len(carry) > limit:
            piece, carry = _cut(carry, limit)
            if stripped := piece.strip():
                carry_has_text = True
                if started and not inside_line:
                    yield stripped
        if not block:
            if started and not inside_line and (stripped := carry.strip()):
                yield stripped
            return
        if position == end:
            past_end = block.endswith(b"\n")  # a line begins right at the end
        text_at_end = past_end or inside_line or carry_has_text or carry.strip()
        if not started and end is not None and position >= end and text_at_end:
            return  # No blank line begins in the stretch: it is all of a document that began before.


def _at_line_start(file: BinaryIO, start: int) -> bool:
    """Whether a line begins at byte `start`; leaves the file there."""
    file.seek(start - 1)
    before, after = file.read(1), file.read(1)
    file.seek(start)
    return before == b"\n" or (before == b"\r" and after != b"\n")


def _pieces(line: str, limit: int) -> Iterator[str]:
    """A line in pieces of at most `limit` characters, stripped, without blank ones: those would end a document."""
    while line:
        piece, line = _cut(line, limit) if len(line) > limit else (line, "")
        if stripped := piece.strip():
            yield stripped


def _cut(line: str, limit: int) -> tuple[str, str]:
    """The first `limit` characters at most, cut after a blank if there is one, and the rest."""
    end = line.rfind(" ", 0, limit) + 1 or limit
    return line[:end], line[end:]
