"""Reads zip and tar archives as streams of files; nothing is extracted to disk."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from typing import BinaryIO

from bert_keras.errors import InputError
from components.io.compression import MAX_RATIO, RATIO_FROM_BYTES

MAX_MEMBERS = 10_000_000
MAX_TOTAL_BYTES = 1 << 40
ARCHIVE_ERRORS = (zipfile.BadZipFile, tarfile.TarError, NotImplementedError)
_TAR_BLOCK = 512


def archive_kind(head: bytes) -> str | None:
    """zip, tar or None, judged by the first 512 bytes of a (decompressed) file."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    return "tar" if head[257:262] == b"ustar" else None


def members(file: BinaryIO, kind: str, source: str) -> Iterator[tuple[str, BinaryIO]]:
    """Yield (name, content) of each regular file of an archive; InputError if it is encrypted, or above the limits."""
    total = 0
    entries = _zip_members(file, source) if kind == "zip" else _tar_members(file)
    for count, (name, size, content) in enumerate(entries, 1):
        total += size
        if count > MAX_MEMBERS:
            raise InputError(f"{source}: has more than {MAX_MEMBERS:,} members; unpack it, or pack it into several")
        if total > MAX_TOTAL_BYTES:
            raise InputError(
                f"{source}: member {name}: with it the archive exceeds {MAX_TOTAL_BYTES:,} bytes; "
                "unpack it, or pack it into several"
            )
        yield name, content


def _zip_members(file: BinaryIO, source: str) -> Iterator[tuple[str, int, BinaryIO]]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.is_dir() or (info.external_attr >> 16) & 0o170000 == 0o120000:  # a folder, a link
                continue
            if info.flag_bits & 1:
                raise InputError(f"{source}: member {info.filename} is encrypted; unpack it yourself")
            if info.file_size > max(RATIO_FROM_BYTES, MAX_RATIO * info.compress_size):
                raise InputError(
                    f"{source}: member {info.filename} decompresses to over {MAX_RATIO} times its size, "
                    "which is unusual for text; unpack it yourself if it is intended"
                )
            with archive.open(info) as content:
                yield info.filename, info.file_size, content  # type: ignore[misc]


def _tar_members(file: BinaryIO) -> Iterator[tuple[str, int, BinaryIO]]:
    # As a stream: decompressed files do not seek.
    with tarfile.open(fileobj=file, mode="r|", bufsize=_TAR_BLOCK * 2048, errors="surrogateescape") as archive:
        for info in archive:
            if info.isreg() and (content := archive.extractfile(info)) is not None:
                content.seekable = lambda: False  # type: ignore[method-assign]  # tarfile's fails on a stream
                yield info.name, info.size, io.BufferedReader(content)  # type: ignore[type-var]
            # tarfile would keep all members of a stream in memory.
            archive.members = []  # type: ignore[attr-defined]
