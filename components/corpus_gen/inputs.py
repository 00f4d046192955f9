"""Finds, checks and fingerprints the user's text files before they are processed."""

import dataclasses
import glob
import hashlib
import math
import os
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

from apache_beam.io.filesystems import BeamIOError, FileSystems

from bert_keras.data.mixture import REPLAY, split_name
from bert_keras.errors import InputError
from bert_keras.notices import notify
from components.corpus_gen.readers import ReadUnit, in_threads, read_unit
from components.corpus_gen.settings import CorpusSettings
from components.io.shards import is_hidden, matching, open_for_ranges, read_json, write_json

# Only so many files are opened here, one by one, before the workers open them.
CHECKED_FILES = 1000
# Local files are hashed in chunks of this size, so that a large file uses all cores.
HASHED_BYTES = 64 << 20
# These stores record when an object was written, and write it atomically: time and size identify its content.
_VERSIONED = ("gs://", "s3://", "azfs://")
# S3's times are whole seconds: an object may be written again within the second in which it was listed.
SETTLING_SECONDS = 2.0
# Upper bound for the clock difference to the store, which refuses requests with larger ones.
_CLOCK_SECONDS = 15 * 60.0
_SECONDS_BETWEEN_LINES = 15.0


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input file, local or in a store; its size is in bytes, compressed if it is.

    `updated` is the time of writing, in seconds since 1970, that the store records; None: its content is hashed.
    `source_name` is the name of its source, of several that are mixed; "": it has none.
    """

    path: str
    size: int
    updated: float | None = None
    source_name: str = ""


@dataclasses.dataclass(frozen=True)
class InputList:
    """Input files as a run records them: a file that lists them, and the hash of their names and contents."""

    path: str = ""
    fingerprint: str = ""

    @classmethod
    def write(cls, files: Sequence[InputFile], directory: str) -> "InputList":
        """Write paths, sizes and sources to a file of `directory`, which the stages must be able to read."""
        identity = fingerprint(files)
        path = f"{directory}/{identity}.json"
        if not FileSystems.exists(path):
            write_json(path, {f.path: [f.size, f.source_name] if f.source_name else f.size for f in files})
        return cls(path, identity)


NO_FILES = InputList()


def find_inputs(patterns: Sequence[str], settings: CorpusSettings) -> list[InputFile]:
    """Files that match `patterns` (paths, folders, globs; local or in a store), each once, sorted by path.

    NAME=PATTERN gives the name of the files' source (`bert_keras.data.mixture`); all patterns have one, or none has. At
    most CHECKED_FILES of a source, evenly spread, are opened; invalid ones among the others are reported when they are
    read. InputError: a pattern matches nothing, a file has no reader or is in two sources, or a source contains no
    text.
    """
    by_name: dict[str, list[str]] = {}
    for name, pattern in map(split_name, patterns):
        by_name.setdefault(name, []).append(pattern)
    if "" in by_name and len(by_name) > 1:
        raise InputError(
            f"{by_name[''][0]}: has no name, and other text has (NAME=PATH_OR_GLOB); name all sources or none"
        )
    if REPLAY in by_name:
        raise InputError(f"{REPLAY}={by_name[REPLAY][0]}: {REPLAY} is the text of --replay; give another name")
    by_path: dict[str, InputFile] = {}
    for name, of_source in by_name.items():
        try:
            files = _with_text(of_source, settings)
        except InputError as error:
            raise InputError(f"source {name}: {error}" if name else str(error)) from error
        for file in files:
            if file.path in by_path:
                raise InputError(f"{file.path}: is in two sources, {by_path[file.path].source_name} and {name}")
            by_path[file.path] = dataclasses.replace(file, source_name=name)
    return [by_path[path] for path in sorted(by_path)]


def _with_text(patterns: Sequence[str], settings: CorpusSettings) -> list[InputFile]:
    """The files of one source; some of them are checked."""
    files = list_files(patterns)
    if any(file.updated is not None and file.updated > time.time() - _CLOCK_SECONDS for file in files):
        time.sleep(SETTLING_SECONDS)
        files = list_files(patterns)
    checked = files[:: math.ceil(len(files) / CHECKED_FILES)]

    def has_text(file: InputFile) -> bool:
        return next(read_unit(ReadUnit(file.path), settings, Counter(), open_for_ranges), None) is not None

    # A list, because `any` would stop at the first: every file is checked.
    if not any([*in_threads(has_text, checked)]) and len(checked) == len(files):
        raise InputError(f"{', '.join(patterns)}: no text in {len(files)} file(s), only blanks; give files with text")
    return files


def check_sources(files: Sequence[InputFile], setting: str, is_set: bool) -> None:
    """InputError if a setting that needs sources with names is set, and the files have none."""
    if is_set and not any(file.source_name for file in files):
        raise InputError(f"{setting}: the text has no sources; name them with --corpus NAME=GLOB")


def fingerprint(files: Sequence[InputFile]) -> str:
    """Hash of names and contents, an execution property: results for changed text are never taken from the cache.

    Local files are read. In stores that record the time of writing, time and size identify the content; in others a
    checksum does.
    """
    pieces = [
        (file, start)
        for file in files
        for start in (range(0, file.size, HASHED_BYTES) if "://" not in file.path and file.size else (0,))
    ]
    progress = _Progress(sum(file.size for file in files if "://" not in file.path))
    digest = hashlib.sha256()
    for (file, start), content in zip(pieces, in_threads(lambda piece: _digest(*piece, progress), pieces), strict=True):
        if not start:
            named = f"{file.source_name}=" if file.source_name else ""
            digest.update(f"{named}{file.path}\0{file.size}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def read_input_list(path: str) -> list[InputFile]:
    """Read the list of an `InputList`: the files, sorted by path."""
    listed = {path: entry if isinstance(entry, list) else [entry, ""] for path, entry in read_json(path).items()}
    return [InputFile(path, size, source_name=name) for path, (size, name) in sorted(listed.items())]


def list_files(patterns: Sequence[str], option: str = "--corpus") -> list[InputFile]:
    """Files that `patterns` match, each once, sorted by path; InputError, with `option`, if one matches nothing."""
    of_patterns = in_threads(lambda pattern: _match(pattern, option), patterns)
    files = {file.path: file for matches in of_patterns for file in matches}
    return [files[path] for path in sorted(files)]


def _match(pattern: str, option: str) -> list[InputFile]:
    """Files that a path, a folder or a glob matches, without hidden ones that it does not name."""
    given, reason, left_out = pattern, "", []
    pattern = pattern.rstrip("/")
    if os.path.exists(pattern):
        # An existing path is taken literally, whatever characters it contains.
        pattern = glob.escape(pattern)
    for candidate in (pattern, f"{pattern}/**") if pattern else ():
        try:
            matches = matching(candidate)
        except BeamIOError as error:
            reason = " ".join(str(cause) for cause in (error.exception_details or {}).values())
            continue
        except ValueError as error:  # a scheme unknown to Beam, or one that needs an extra package
            raise InputError(f"{pattern}: {error}") from error
        files = [file for file in matches if not is_hidden(file.path, candidate)]
        if count := len(matches) - len(files):
            first = next(file.path for file in matches if is_hidden(file.path, candidate))
            what = f"{count:,} hidden file(s) (names that begin with '.')"
            left_out.append(f"{what}; {option} {first} reads the first one")
        walked = os.walk(given) if candidate.endswith("/**") else ()
        folders = (os.path.join(root, name) for root, names, _ in walked for name in sorted(names))
        if links := [path for path in folders if os.path.islink(path) and not is_hidden(path, candidate)]:
            left_out.append(f"{len(links):,} linked folder(s); {option} {links[0]} reads the first one")
        if files:
            for what in left_out:
                notify(f"{given}: left out {what}")
            noted = pattern.startswith(_VERSIONED)
            return [InputFile(f.path, f.size_in_bytes, f.last_updated_in_seconds if noted else None) for f in files]
    if reason:
        raise InputError(
            f"{given}: cannot be listed ({reason.splitlines()[0]}); give a path that this machine can read"
        )
    if left_out:
        raise InputError(f"{given}: has only {left_out[0]}")
    raise InputError(f"{given}: no such file; {option} takes a file, a folder or a quoted glob")


def _digest(file: InputFile, start: int, progress: "_Progress") -> bytes:
    """Digest that identifies the content of a file, or HASHED_BYTES of a local file from `start`."""
    if file.updated is not None:
        return struct.pack("<Qd", file.size, file.updated)
    if "://" in file.path:
        return FileSystems.checksum(file.path).encode()
    digest = hashlib.blake2b(digest_size=32)  # twice as fast as SHA-256 without hardware support
    remaining = HASHED_BYTES
    with open(file.path, "rb") as content:
        content.seek(start)
        while chunk := content.read(min(remaining, 1 << 20)):
            digest.update(chunk)
            remaining -= len(chunk)
            progress.add(len(chunk))
    return digest.digest()


class _Progress:
    """Prints to standard error, now and then, how much of the corpus has been hashed."""

    def __init__(self, total: int):
        self._total, self._done, self._lock = total, 0, threading.Lock()
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            if time.monotonic() > self._next:
                self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
                print(f"fingerprint  {self._done / 1e9:,.1f} of {self._total / 1e9:,.1f} GB", file=sys.stderr)
