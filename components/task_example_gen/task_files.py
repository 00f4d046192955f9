"""Opens a task's files, plain or compressed, and lists folders."""

import contextlib
import glob
import os
from collections.abc import Iterator
from typing import BinaryIO

from apache_beam.io.filesystems import BeamIOError

from bert_keras.errors import InputError
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import input_errors
from components.io.archives import archive_kind
from components.io.compression import decompressed
from components.io.shards import is_hidden, matching, open_file


@contextlib.contextmanager
def open_content(path: str) -> Iterator[BinaryIO]:
    """Open the decompressed content of a file; InputError: it cannot be read (also later), or is an archive."""
    with input_errors(path), open_file(path) as file:
        content = decompressed(file, path)
        if archive_kind(content.peek(512)[:512]) is not None:
            raise InputError(f"{path}: is an archive; unpack it, and give the file or the folder")
        yield content


def is_folder(path: str) -> bool:
    """Return whether `path` is a folder; in object stores, whether there are files below it."""
    return bool(files_below(path)) if "://" in path else os.path.isdir(path)


def files_below(folder: str) -> list[InputFile]:
    """Files below a folder, at any depth, without hidden ones, sorted by path."""
    folder = folder.rstrip("/")
    try:
        files = matching(f"{glob.escape(folder)}/**")
    except (BeamIOError, ValueError) as error:
        raise InputError(f"{folder}: {error}") from error
    return [InputFile(file.path, file.size_in_bytes) for file in files if not is_hidden(file.path[len(folder) :])]
