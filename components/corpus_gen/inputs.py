"""The user's text files: found, checked and fingerprinted before anything is made of them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

from apache_beam.io.filesystems import BeamIOError, FileSystems

from components.errors import InputError

# Enough of a file's head to tell text from something else.
SNIFFED_BYTES = 1 << 16
# Text in UTF-8 has none; what has more undecodable bytes than this is another encoding, or no text.
MAX_INVALID_SHARE = 0.05


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
        found = _match(pattern) or _match(pattern.rstrip("/") + "/**")
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


def _match(pattern: str) -> dict[str, int]:
    try:
        (result,) = FileSystems.match([pattern])
    except BeamIOError:
        return {}
    return {
        metadata.path: metadata.size_in_bytes
        for metadata in result.metadata_list
        # A local folder matches its own name.
        if not _is_directory(metadata.path)
    }


def _is_directory(path: str) -> bool:
    import os.path

    return "://" not in path and os.path.isdir(path)


def _check_text(path: str) -> bool:
    """Whether the head of a text file has any text; refuses what is not text."""
    try:
        with FileSystems.open(path) as file:
            head = file.read(SNIFFED_BYTES)
            # Blanks may be long, but not a whole file's length before its text.
            has_text = bool(head.strip()) or any(chunk.strip() for chunk in iter(lambda: file.read(1 << 20), b""))
    except (OSError, BeamIOError, EOFError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be read ({reason})") from error
    if b"\0" in head:
        raise InputError(f"{path}: is not text (it has NUL bytes); give UTF-8 text files")
    # A character may be cut at the end of the head: at most three bytes.
    invalid = head.decode("utf-8", "replace").count("\ufffd") - head.count("\ufffd".encode())
    if invalid - 1 > MAX_INVALID_SHARE * len(head):
        raise InputError(f"{path}: is not UTF-8 text ({invalid:,} invalid bytes in its first {len(head):,}); convert it")
    return has_text


def _sha256(path: str) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
