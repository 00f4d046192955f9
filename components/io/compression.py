"""Reads compressed files, recognised by their first bytes rather than their names."""

import bz2
import gzip
import io
import lzma
import os
import zlib
from typing import Any, BinaryIO

import pyarrow

from bert_keras.errors import InputError

# Exceptions of opening or reading a damaged file.
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, pyarrow.ArrowException)
# Text compresses to a third or a tenth, logs to a fiftieth. A higher ratio is a decompression bomb.
MAX_RATIO = 500
# The ratio is not checked before this size: a few kilobytes of blanks compress a thousandfold.
RATIO_FROM_BYTES = 64 << 20

BUFFER_BYTES = 1 << 18

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def compression_of(head: bytes) -> str | None:
    """gzip, bzip2, xz, zstd or None, judged by the first bytes of a file."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def extension(path: str) -> str:
    """Lower-case extension: .tsv for train.tsv and for train.tsv.gz."""
    name, last = os.path.splitext(path)
    return (os.path.splitext(name)[1] if last.lower() in _COMPRESSED else last).lower()


def decompressed(file: BinaryIO, source: str) -> io.BufferedReader:
    """Content of a file at its beginning, decompressed if need be; several streams in a row are read as one."""
    buffered = peekable(file)
    if (kind := compression_of(buffered.peek(8)[:8])) is None:
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
        # Not python-zstandard's reader: it accepts truncated files.
        content = pyarrow.CompressedInputStream(pyarrow.PythonFile(counted, mode="r"), "zstd")
    return io.BufferedReader(_Limited(content, counted, source), BUFFER_BYTES)


def peekable(file: BinaryIO) -> io.BufferedReader:
    """The file with a `peek` that returns a large part of its head."""
    return io.BufferedReader(file, BUFFER_BYTES)  # type: ignore[arg-type]


class _Counted(io.RawIOBase):
    """File that counts the bytes read from it."""

    def __init__(self, file: BinaryIO):
        self._file, self.count = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        self.count += len(data)
        buffer[: len(data)] = data
        return len(data)


class _Limited(_Counted):
    """Decompressed content, limited to a plausible compression ratio."""

    def __init__(self, content: BinaryIO, compressed: _Counted, source: str):
        super().__init__(content)
        self._compressed, self._source = compressed, source

    def readinto(self, buffer) -> int:
        length = super().readinto(buffer)
        if self.count > max(RATIO_FROM_BYTES, MAX_RATIO * self._compressed.count):
            raise InputError(
                f"{self._source}: decompresses to over {MAX_RATIO} times its size ({self.count:,} bytes so far), "
                "which is unusual for text; decompress it yourself if it is intended"
            )
        return length
