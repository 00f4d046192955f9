"""Progress of a Beam stage: a line rewritten on a terminal, or printed now and then elsewhere."""

from __future__ import annotations

import os
import threading
import time

from rich.console import Console

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_LINES = 15.0


class StageProgress:
    """Context manager that reports on standard error how much a stage has written to a local folder.

    Beam's local runners report nothing before they end, but their files are visible at once.

    Args:
        folder: folder of its files, including subfolders.
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
            self._console.print(self._line(), soft_wrap=True)

    def _watch(self) -> None:
        last_line = self._started
        with self._console.status(self._name) as status:
            while not self._stop.wait(SECONDS_BETWEEN_LOOKS):
                if self._console.is_terminal:
                    status.update(self._line())
                elif time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                    self._console.print(self._line(), soft_wrap=True)
                    last_line = time.monotonic()

    def _line(self) -> str:
        files, size = _written(self._folder)
        return (
            f"{self._name:<12} {time.monotonic() - self._started:6.0f} s   "
            f"{(size - self._bytes_before) / 1e6:,.1f} MB in {files - self._files_before:,} files"
        )


def _written(folder: str) -> tuple[int, int]:
    """Number and total bytes of the files below a local folder."""
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.path.getsize(os.path.join(path, name))
                files += 1
            except OSError:  # renamed or removed in the meantime
                continue
    return files, size
