"""Exit codes of the commands; imported also by Airflow's Python, which has no Typer."""

import errno
import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """Exit codes of the commands."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NOT_BLESSED = 3
    PREEMPTED = 4


_STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
# Messages of the C library, SQLite, TensorFlow and Beam, inside their own error types.
_STORAGE_WORDS = re.compile(
    r"^.*?(No space left on device|Disk quota exceeded|Read-only file system|database or disk is full"
    r"|attempt to write a readonly database)",
    re.MULTILINE,
)


def storage_trouble(error: BaseException | None) -> str | None:
    """One line on a full or read-only disk, found in an error or its causes; None for other errors.

    An error that was raised while another one was handled is no consequence of it (`__context__`): it may be a defect.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in _STORAGE_ERRORS:
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        else:
            words = _STORAGE_WORDS.search(str(error))
            message = words[0].strip() if words else ""
        if message:
            return f"{message}; make it writable or free some space, then run the same command to resume"
        error = error.__cause__
    return None


def exit_if_refused(summary: Mapping[str, Any]) -> None:
    """Exit with NOT_BLESSED and a message if the gate refused the model; a run without new text has none."""
    import typer

    if not summary["blessed"] and summary.get("new_text", True):
        served = summary["served_version"]
        stays = f"version {served} stays served" if served else "no version is served yet"
        typer.echo(f"bert-tfx: the gate refused this model, nothing was pushed; {stays}", err=True)
        raise typer.Exit(Exit.NOT_BLESSED)
