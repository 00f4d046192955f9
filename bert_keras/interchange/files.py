"""Text and JSON files, and folders of which all files are written or none."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from bert_keras.errors import InputError


def read_text(path: str) -> str:
    """A text file; InputError if it is not there, or no text."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise InputError(f"{path} is not there; the folder of such a model has it") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); bring it again") from error


def read_json(path: str) -> dict[str, Any]:
    """The fields of a JSON object; InputError if the file has none."""
    text = read_text(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path} holds {type(fields).__name__}, not an object of fields")
    return fields


@contextlib.contextmanager
def staged(directory: str) -> Iterator[str]:
    """A temporary folder whose files are moved into `directory` when all are written, and dropped at an error."""
    os.makedirs(directory, exist_ok=True)
    # Inside it, so that a rename stays on one file system.
    with tempfile.TemporaryDirectory(prefix=".part-", dir=directory) as temporary:
        yield temporary
        for name in sorted(os.listdir(temporary)):
            os.replace(os.path.join(temporary, name), os.path.join(directory, name))


def write_text(directory: str, name: str, text: str) -> None:
    with open(os.path.join(directory, name), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_json(directory: str, name: str, fields: dict[str, Any]) -> None:
    write_text(directory, name, json.dumps(fields, indent=2, sort_keys=True) + "\n")
