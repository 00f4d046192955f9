"""Text and JSON files; files and folders written as a whole or not at all.

`epath.Path` opens local paths, and gs://, s3:// and az:// by TensorFlow if it is installed, otherwise by fsspec.
"""

import contextlib
import glob
import json
import math
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from etils import epath
from filelock import FileLock, Timeout

from bert_keras.errors import InputError

STORES = ("gs://", "s3://", "az://")


def read_text(path: str) -> str:
    """Read a text file, without its byte order mark; InputError if it is missing, not UTF-8 or no download of it."""
    try:
        check_download(path)
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; a folder of such a model needs it") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); copy it again") from error


def check_download(path: str) -> None:
    """Raise InputError for what a download gives in a file's place: a pointer of git-LFS, or a web page."""
    with open(path, "rb") as file:
        start = file.read(64).lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        raise InputError(f"{path} is a pointer of git-LFS in place of the file; fetch the file: git lfs pull")
    if start.startswith((b"<!doctype html", b"<html")):
        raise InputError(f"{path} is a web page in place of the file; download the file itself, logged in if need be")


def read_json(path: str) -> dict[str, Any]:
    """Read the fields of a JSON object; InputError if the file holds no object."""
    text = read_text(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path} holds {type(fields).__name__}, not a JSON object")
    return fields


def files_in(folder: str) -> list[str]:
    """Sorted paths of what is in a folder, local or in a store; none if there is no folder."""
    path = epath.Path(folder)  # `glob` would read a `[` in its name as a pattern
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    return [os.path.join(folder, name) for name in names]


def files_below(folder: str) -> list[str]:
    """Paths of all files below a folder, also those of linked folders, which `epath.Path.walk` leaves out."""
    paths = [(path, epath.Path(path).is_dir()) for path in files_in(folder)]
    return [file for path, is_folder in paths for file in (files_below(path) if is_folder else [path])]


def size_of(path: str) -> int:
    """Size of a file in bytes (a local `epath.Path.stat` needs a user's name, which a container may not have)."""
    return epath.Path(path).stat().length if "://" in path else os.path.getsize(path)


def check_no_pattern(path: str, remedy: str) -> None:
    """InputError for a path with `*`, `?` or `[`: TensorFlow and TFX open checkpoints and artifacts by patterns."""
    # Of another store `epath` would make local folders.
    if "://" in path and not path.startswith(STORES):
        raise InputError(f"{path}: the stores are {', '.join(STORES)}; {remedy}")
    if glob.escape(path) != path:
        raise InputError(f"{path}: TensorFlow reads * ? and [ in a path as a pattern and finds no file there; {remedy}")


def json_text(value: Any, **options: Any) -> str:
    """JSON by `json.dumps` with its options; NaN and infinity, which JSON does not have, become null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary path that becomes `path`, of a local file, at the end of the block, and is removed at an error."""
    folder, name = os.path.split(path)
    os.makedirs(folder or ".", exist_ok=True)
    # Beside it, so that the rename stays on one file system; with its suffix, which some writers look at.
    temporary = os.path.join(folder, f".{uuid.uuid4().hex}-{name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


@contextlib.contextmanager
def atomic_open(path: str) -> Iterator[BinaryIO]:
    """A file to write to, local or in a store: `path` exists only when all of it is there."""
    if "://" in path:  # an object of a store appears when it is closed
        with epath.Path(path).open("wb") as file:
            yield file
        return
    with replacing(path) as temporary, open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def atomic_write_anywhere(path: str, content: str | bytes) -> None:
    """Write a file, local or in a store: `path` holds all of the content, or what it held before."""
    with atomic_open(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def staged(directory: str) -> Iterator[str]:
    """A temporary folder whose files are moved into `directory` on success and dropped on an error."""
    os.makedirs(directory, exist_ok=True)
    # Inside it, so that a rename stays on one file system.
    with tempfile.TemporaryDirectory(prefix=".part-", dir=directory) as temporary:
        yield temporary
        for name in sorted(os.listdir(temporary)):
            os.replace(os.path.join(temporary, name), os.path.join(directory, name))


@contextlib.contextmanager
def locked(folder: str, option: str) -> Iterator[None]:
    """Make and lock a folder, which `option` gives; the lock is released however this process ends.

    Object stores have no locks. InputError: another process is using the folder, or it is not writable.
    """
    if "://" in folder:
        yield
        return
    try:
        held = FileLock(os.path.join(folder, "lock"), timeout=0).acquire()  # makes the folder
    except Timeout as error:
        raise InputError(f"{folder}: another bert-tfx runs in it; wait for it, or give another {option}") from error
    except OSError as error:
        raise InputError(f"{folder}: not writable ({error.strerror}); give another {option}") from error
    with held:
        yield


def write_text(directory: str, name: str, text: str | bytes) -> None:
    with open(os.path.join(directory, name), "wb") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def write_json(directory: str, name: str, fields: dict[str, Any]) -> None:
    write_text(directory, name, json_text(fields, indent=2, sort_keys=True) + "\n")
