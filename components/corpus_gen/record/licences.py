"""Finds licence files: LICENSE, LICENCE, COPYING, also in small letters and with an extension."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator

from apache_beam.io.filesystems import BeamIOError

from components.corpus_gen.readers import cannot_be_read
from components.corpus_gen.record.tally import shared_folders
from components.io.shards import matching, open_file

# Their name in corpus.json.
LICENCES = "licences"
_NAMES = ("license", "licence", "copying")
# Larger files are text about licences.
_MAX_BYTES = 1 << 20


def licence_files(paths: Iterable[str]) -> list[str]:
    """Those of `paths` that are licence files, by their names."""
    return [path for path in paths if os.path.basename(path).lower().startswith(_NAMES)]


def licences_of(files: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """The licence files beside a corpus, for corpus.json: {"source", "file", "sha256"}, sorted.

    Those of a source are in the folder that has all its files, not further down. `files` are (name of the source or "",
    path) of each file of text. InputError: a licence file cannot be read.
    """
    by_source: dict[str, list[str]] = {}
    for source, path in files:
        by_source.setdefault(source, []).append(path)
    return [
        {"source": source, "file": os.path.basename(path), "sha256": _sha256(path)}
        for source, paths in sorted(by_source.items())
        for path in sorted(set(_beside(paths)))
    ]


def _beside(paths: list[str]) -> Iterator[str]:
    folder = glob.escape("".join(f"{part}/" for part in shared_folders(paths))) or "./"
    # A store lists by the beginning of a name, not a whole folder of text.
    patterns = [f"{folder}{form(name)}*" for name in _NAMES for form in (str.upper, str.lower, str.capitalize)]
    try:
        files = [file for pattern in patterns for file in matching(pattern)]
    except BeamIOError:  # who may read files may not always list them
        return
    yield from (file.path for file in files if file.size_in_bytes <= _MAX_BYTES)


def _sha256(path: str) -> str:
    try:
        with open_file(path) as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise cannot_be_read(path, error) from error
