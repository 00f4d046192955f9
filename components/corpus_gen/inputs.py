"""The user's text files: found, checked and fingerprinted before anything is made of them."""

from __future__ import annotations

import dataclasses
import glob
import gzip
import hashlib
import os
import zlib
from collections.abc import Sequence
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import BeamIOError, FileSystems

from bert_keras.errors import InputError

# Enough of a file's head to tell text from something else.
SNIFFED_BYTES = 1 << 16
# Text in UTF-8 has none; what has more undecodable bytes than this is another encoding, or no text. German in Latin-1
# has twice as many, French four times.
MAX_INVALID_SHARE = 0.01
# What opening and reading a file raises.
READ_ERRORS = (OSError, EOFError, zlib.error)


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A text file and its size in bytes (compressed, if it is)."""

    path: str
    size: int


def find_inputs(patterns: Sequence[str]) -> list[InputFile]:
    """The files of `patterns` (paths, folders, globs; local or gs://), each once, sorted by path.

    Raises:
        InputError: a pattern matches nothing, a file cannot be read or is not UTF-8 text, or all are empty.
    """
    files: dict[str, int] = {}
    for pattern in patterns:
        found = _match(pattern)
        if not found:
            raise InputError(f"{pattern}: no such file; --corpus takes a file, a folder or a quoted glob")
        files.update(found)
    text = False
    for path in files:
        text = _check_text(path) or text
    if not text:
        raise InputError(f"{', '.join(patterns)}: no text in {len(files)} file(s), only blanks; give files with text")
    return [InputFile(path, size) for path, size in sorted(files.items())]


def fingerprint(files: Sequence[InputFile]) -> str:
    """A hash of names and contents: it is an execution property, so changed text is never served from the cache."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.path.encode())
        digest.update(FileSystems.checksum(file.path).encode() if "://" in file.path else _sha256(file.path))
    return digest.hexdigest()


def open_input(path: str) -> BinaryIO:
    """The bytes of a file, decompressed if its name ends in .gz."""
    # Not by Beam: it takes a truncated .gz for a whole one, and its file is none to io.TextIOWrapper.
    file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file  # type: ignore[return-value]


def cannot_be_read(path: str, error: Exception) -> InputError:
    """What to tell of one of `READ_ERRORS`."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return InputError(f"{path}: cannot be read ({reason}); give a readable text file, plain or .gz")


def _match(pattern: str) -> dict[str, int]:
    """Paths and sizes of the files that a path, a folder or a glob means."""
    pattern = pattern.rstrip("/")
    if os.path.exists(pattern):
        # It means itself, whatever characters it has.
        pattern = glob.escape(pattern)
    for candidate in (pattern, f"{pattern}/**") if pattern else ():
        try:
            (result,) = FileSystems.match([candidate])
        except BeamIOError:
            continue
        except ValueError as error:  # a scheme that Beam does not know, or not without an extra package
            raise InputError(f"{pattern}: {error}") from error
        # A local folder matches its own name.
        files = {m.path: m.size_in_bytes for m in result.metadata_list if not os.path.isdir(m.path)}
        if files:
            return files
    return {}


def _check_text(path: str) -> bool:
    """Whether a file has any text; refuses what is not text."""
    try:
        with open_input(path) as file:
            head = file.read(SNIFFED_BYTES)
            # Blanks may be long, but not a whole file's length before its text.
            has_text = _has_text(head) or any(_has_text(chunk) for chunk in iter(lambda: file.read(1 << 20), b""))
    except READ_ERRORS as error:
        raise cannot_be_read(path, error) from error
    if b"\0" in head:
        raise InputError(f"{path}: is not text (it has NUL bytes); give UTF-8 text files, plain or .gz")
    # A character may be cut at the end of the head: at most three bytes.
    invalid = head.decode("utf-8", "replace").count("\ufffd") - head.count("\ufffd".encode())
    if invalid - 1 > MAX_INVALID_SHARE * len(head):
        raise InputError(f"{path}: is not UTF-8 text ({invalid:,} bad bytes in its first {len(head):,}); convert it")
    return has_text


def _has_text(content: bytes) -> bool:
    """Whether there is more than blanks, those of Unicode too, and a byte order mark."""
    return bool(content.decode("utf-8-sig", "ignore").strip())


def _sha256(path: str) -> bytes:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.digest()
