"""Opens files, compressed files, and members of archives, written as `glue.zip!CoLA/train.tsv`."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator
from typing import BinaryIO

from apache_beam.io.filesystems import BeamIOError

from bert_keras.errors import InputError
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import cannot_be_read
from components.io.archives import ARCHIVE_ERRORS, archive_kind, members
from components.io.compression import READ_ERRORS, decompressed
from components.io.shards import is_hidden, matching, open_file

MEMBER = "!"
_NAMES_SHOWN = 5


def split_member(path: str) -> tuple[str, str]:
    """Split glue.zip!CoLA/train.tsv into glue.zip and CoLA/train.tsv; without a member, the second is empty."""
    if MEMBER not in path or os.path.exists(path):
        return path, ""
    file, _, member = path.partition(MEMBER)
    return file, member


@contextlib.contextmanager
def open_member(path: str) -> Iterator[BinaryIO]:
    """Open the decompressed content of a file or of a member of an archive.

    InputError: it cannot be read (also later, while reading), or no member of an archive is named.
    """
    file_path, member = split_member(path)
    with input_errors(file_path), open_file(file_path) as file:
        content = decompressed(file, file_path)
        kind = archive_kind(content.peek(512)[:512])
        if kind is None and not member:
            yield content
            return
        names = []
        for name, inner in members(content, kind, file_path) if kind else ():
            if name == member:
                yield decompressed(inner, path)
                return
            names.append(name)
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "") or "nothing"
    raise InputError(f"{path}: name one file of the archive, as {file_path}{MEMBER}MEMBER; it contains {shown}")


@contextlib.contextmanager
def input_errors(path: str) -> Iterator[None]:
    """Convert errors while reading a file to InputError with a remedy."""
    try:
        yield
    except (*READ_ERRORS, *ARCHIVE_ERRORS) as error:
        raise cannot_be_read(path, error) from error


def is_archive(path: str) -> bool:
    """Whether the file is a zip or tar archive, compressed or not."""
    with input_errors(path), open_file(path) as file:
        return archive_kind(decompressed(file, path).peek(512)[:512]) is not None


def archive_members(path: str) -> Iterator[tuple[str, BinaryIO]]:
    """Yield (name, decompressed content) of each file of an archive that is not hidden."""
    with input_errors(path), open_file(path) as file:
        content = decompressed(file, path)
        for name, inner in members(content, archive_kind(content.peek(512)[:512]) or "", path):
            if not is_hidden(name):
                yield name, decompressed(inner, f"{path}{MEMBER}{name}")


def is_folder(path: str) -> bool:
    """Whether `path` is a folder; in object stores, whether there are files below it."""
    return bool(files_below(path)) if "://" in path else os.path.isdir(path)


def files_below(folder: str) -> list[InputFile]:
    """Files below a folder, at any depth, without hidden ones, sorted by path."""
    folder = folder.rstrip("/")
    try:
        files = matching(f"{glob.escape(folder)}/**")
    except (BeamIOError, ValueError) as error:
        raise InputError(f"{folder}: {error}") from error
    return [InputFile(file.path, file.size_in_bytes) for file in files if not is_hidden(file.path[len(folder) :])]
