"""What one sees while a Beam stage runs: a line that is rewritten on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import threading
import time

from rich.console import Console

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_LINES = 15.0


class StageProgress:
    """A context manager that says, on standard error, how much a stage has written to a local folder so far.

    Beam's local runners report nothing before they end, whatever runs in them or beside them; files are seen by all.

    Args:
        name: of the stage.
        folder: where its files appear; below it everything counts.
    """

    def __init__(self, name: str, folder: str):
        self._name, self._folder = name, folder
        self._console = Console(stderr=True, highlight=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> StageProgress:
        self._started = time.monotonic()
        self._files_before, self._bytes_before = _written(self._folder)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self._console.print(self._line())

    def _watch(self) -> None:
        last_line = self._started
        with self._console.status(self._name) as status:
            while not self._stop.wait(SECONDS_BETWEEN_LOOKS):
                if self._console.is_terminal:
                    status.update(self._line())
                elif time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                    self._console.print(self._line())
                    last_line = time.monotonic()

    def _line(self) -> str:
        files, size = _written(self._folder)
        return (
            f"{self._name:<12} {time.monotonic() - self._started:6.0f} s   "
            f"{(size - self._bytes_before) / 1e6:,.1f} MB in {files - self._files_before:,} files"
        )


def _written(folder: str) -> tuple[int, int]:
    """Files below a local folder, and their bytes."""
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.path.getsize(os.path.join(path, name))
                files += 1
            except OSError:  # renamed or removed meanwhile
                continue
    return files, size
