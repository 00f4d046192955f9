"""Compressed files, told by their first bytes, not by their names."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from typing import Any, BinaryIO

import pyarrow

from bert_keras.errors import InputError

# What opening and reading a damaged file raises.
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, pyarrow.ArrowException)
# Text shrinks to a third or a tenth, logs to a fiftieth. What grows more than this is made to fill disks.
MAX_RATIO = 500
# Not judged before so much has come out: a few kilobytes of blanks shrink a thousandfold.
RATIO_FROM_BYTES = 64 << 20

BUFFER_BYTES = 1 << 18

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def compression_of(head: bytes) -> str | None:
    """gzip, bzip2, xz, zstd or None, from a file's first bytes."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def decompressed(file: BinaryIO, source: str) -> io.BufferedReader:
    """The file's content, decompressed if it is compressed; what it is read from may hold several streams in a row.

    Args:
        file: at its beginning.
        source: its name, for errors.
    """
    buffered = peekable(file)
    kind = compression_of(buffered.peek(8)[:8])
    if kind is None:
        return buffered
    counted = _Counted(buffered)
    content: Any
    if kind == "gzip":
        content = gzip.GzipFile(fileobj=counted)
    elif kind == "bzip2":
        content = bz2.BZ2File(counted)
    elif kind == "xz":
        content = lzma.LZMAFile(counted)  # type: ignore[arg-type]  # noqa: SIM115
    else:
        # Not python-zstandard's reader: it takes a truncated file for a whole one.
        content = pyarrow.CompressedInputStream(pyarrow.PythonFile(counted, mode="r"), "zstd")
    return io.BufferedReader(_Limited(content, counted, source), BUFFER_BYTES)


def peekable(file: BinaryIO) -> io.BufferedReader:
    """The file with a `peek` that shows a good part of its head."""
    return io.BufferedReader(file, BUFFER_BYTES)  # type: ignore[arg-type]


class _Counted(io.RawIOBase):
    """A file that counts what is read from it."""

    def __init__(self, file: BinaryIO):
        self._file, self.count = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        self.count += len(data)
        buffer[: len(data)] = data
        return len(data)


class _Limited(io.RawIOBase):
    """Decompressed content, as far as it grows in proportion."""

    def __init__(self, content: BinaryIO, compressed: _Counted, source: str):
        self._content, self._compressed, self._source, self._count = content, compressed, source, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._content.read(len(buffer))
        buffer[: len(data)] = data
        self._count += len(data)
        if self._count > max(RATIO_FROM_BYTES, MAX_RATIO * self._compressed.count):
            raise InputError(
                f"{self._source}: decompresses to over {MAX_RATIO} times its size ({self._count:,} bytes so far), "
                "which text does not; decompress it yourself if it is what you want"
            )
        return len(data)
