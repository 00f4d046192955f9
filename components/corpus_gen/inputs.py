"""The user's text files: found, checked and fingerprinted before anything is made of them."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
from collections import Counter
from collections.abc import Sequence

from apache_beam.io.filesystems import BeamIOError, FileSystems

from bert_keras.errors import InputError
from components.corpus_gen.readers import ReadUnit, read_unit
from components.corpus_gen.settings import CorpusSettings


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A file and its size in bytes (compressed, if it is)."""

    path: str
    size: int


def find_inputs(patterns: Sequence[str], settings: CorpusSettings) -> list[InputFile]:
    """The files of `patterns` (paths, folders, globs; local or gs://), each once, sorted by path.

    Raises:
        InputError: a pattern matches nothing, no reader takes a file, or there is no text in any.
    """
    files: dict[str, int] = {}
    for pattern in patterns:
        found = _match(pattern)
        if not found:
            raise InputError(f"{pattern}: no such file; --corpus takes a file, a folder or a quoted glob")
        files.update(found)
    text = False
    for path in files:
        text = next(read_unit(ReadUnit(path), settings, Counter()), None) is not None or text
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


def _sha256(path: str) -> bytes:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.digest()
