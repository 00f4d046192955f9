"""SIGTERM, as a scheduler sends it some seconds before it takes the machine away."""

from __future__ import annotations

import signal
import threading


class Termination:
    """A context manager, true once SIGTERM has come; what ran before goes on meanwhile.

    One that nothing was raised for, since it came with the last step, is sent again at the end: it is not lost.
    Signals reach a process's main thread alone: in another one this is never true.
    """

    def __init__(self) -> None:
        self._came = False

    def __bool__(self) -> bool:
        return self._came

    def __enter__(self) -> Termination:
        self._catches = threading.current_thread() is threading.main_thread()
        if self._catches:
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._catches:
            signal.signal(signal.SIGTERM, self._before)
            if self._came and exception == (None, None, None):
                signal.raise_signal(signal.SIGTERM)

    def _note(self, number: int, frame: object) -> None:
        self._came = True
