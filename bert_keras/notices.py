"""Notices: facts about a run that a user must see, such as text that is never read or a damaged checkpoint.

They reach the terminal whatever a run redirects. A run also records them in a file (`recording`), from which its
summary and its report repeat them; child processes find the file by an environment variable.
"""

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator

_STANDARD_ERROR = 2
# The file that notices are recorded in.
_FILE = "BERT_TFX_NOTICES"
# The descriptor of the terminal's standard error; a run that redirects the usual one keeps a duplicate here.
terminal = _STANDARD_ERROR
# The file that this process, not a parent, records.
_recorded = ""


def notify(message: str) -> None:
    """Print a notice to the terminal's standard error and record it; once a run."""
    path = os.environ.get(_FILE, "")
    if path and not _append(path, message):
        return
    if path == _recorded:
        tell(message)


def tell(message: str) -> None:
    """Print a line to the terminal's standard error."""
    # Names of files need not be UTF-8.
    line = f"bert-tfx: {message}\n".encode("utf-8", "backslashreplace")
    if terminal == _STANDARD_ERROR:
        print(line.decode(), end="", file=sys.stderr, flush=True)
    else:
        # A progress bar leaves the cursor at its end.
        erase = b"\r\x1b[K" if os.isatty(terminal) else b""
        os.write(terminal, erase + line)


@contextlib.contextmanager
def recording(path: str) -> Iterator[None]:
    """Record the notices of this process and its children, which are printed at the end, in a file of JSON lines."""
    global _recorded
    os.makedirs(os.path.dirname(path), exist_ok=True)
    before, earlier = (_recorded, os.environ.get(_FILE)), len(_lines(path))
    _recorded = os.environ[_FILE] = path
    try:
        yield
    finally:
        _recorded = before[0]
        if before[1] is None:
            del os.environ[_FILE]
        else:
            os.environ[_FILE] = before[1]
        for line in _lines(path)[earlier:]:
            if line["process"] != os.getpid():
                tell(line["notice"])


def recorded(path: str) -> list[str]:
    """The notices in a file of `recording`, in order; none if there is no file."""
    return [line["notice"] for line in _lines(path)]


def _append(path: str, message: str) -> bool:
    """Append a notice; return whether it is new."""
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if message in recorded(path):
            return False
        file.write(json.dumps({"notice": message, "process": os.getpid()}) + "\n")
        return True


def _lines(path: str) -> list[dict]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
