"""Preemption: SIGTERM, which a scheduler sends some seconds before it takes the machine away, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

_NAMES = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}
_STDERR = 2


class Termination:
    """A context manager that records SIGTERM or Ctrl-C without interrupting; true once a signal was received.

    A signal during the last step, after which nothing is raised, is sent again on exit. A second Ctrl-C has its usual
    effect. Only a process's main thread receives signals: in another thread this is never true.

    Attributes:
        cause: name of the signal received; SIGTERM before any, because another worker may have received it.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}
        self.cause = _NAMES[signal.SIGTERM]

    def __bool__(self) -> bool:
        return self._received is not None

    def __enter__(self) -> Termination:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _NAMES}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._received is not None and exception == (None, None, None):
            signal.raise_signal(self._received)

    def _note(self, number: int, frame: object) -> None:
        self._received, self.cause = number, _NAMES[signal.Signals(number)]
        if number == signal.SIGINT:
            signal.signal(number, self._before[number])
            # Not `print`: the interrupted code may be inside one.
            os.write(_STDERR, b"\nstopping after a checkpoint; Ctrl-C again stops at once, without one\n")
