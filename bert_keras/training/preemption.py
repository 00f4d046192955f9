"""Preemption: SIGTERM, which a scheduler sends some seconds before it takes the machine away, and Ctrl-C.

They are answered by a thread: the main thread runs no handler while it is in a library's C++ code.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bert_keras.notices import tell

_NAMES = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}
_LAST_CTRL_C = 3
_SHOW_CURSOR = b"\x1b[?25h"

# Set once Ctrl-C is to end the command; libraries may turn its KeyboardInterrupt into another error, or wait forever.
ctrl_c = threading.Event()


@contextlib.contextmanager
def answered(answer: Callable[[int], None]) -> Iterator[None]:
    """Within the block call `answer`, in a thread, with the number of each signal that Python handles.

    Every signal is answered when the block has ended. Only the main thread has signals: in another one nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers, arrivals = socket.socketpair()
    arrivals.setblocking(False)

    def watch() -> None:
        while received := numbers.recv(1):
            answer(received[0])

    thread = threading.Thread(target=watch, name="signals", daemon=True)
    before = signal.set_wakeup_fd(arrivals.fileno())
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        arrivals.close()
        thread.join()
        numbers.close()


class Termination:
    """A context manager that records SIGTERM or Ctrl-C without interrupting; true once a signal was received.

    The first signal and a second Ctrl-C are answered on the terminal at once, a third Ctrl-C ends the process. A signal
    during the last step, after which nothing is raised, is sent again on exit. Only a process's main thread receives
    signals: in another thread this is never true. `on_stop`: called at the first signal, by another thread. `cause`:
    name of the signal received; SIGTERM before any, because another worker may have received it.
    """

    def __init__(self, on_stop: Callable[[], None] = lambda: None) -> None:
        self._on_stop = on_stop
        self._received: int | None = None
        self._before: dict[int, Any] = {}
        self._answering = contextlib.ExitStack()
        self._answered: list[int] = []
        self.cause = _NAMES[signal.SIGTERM]

    def __bool__(self) -> bool:
        return self._received is not None

    def __enter__(self) -> "Termination":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _NAMES}
            self._answering.enter_context(answered(self._answer))
        return self

    def __exit__(self, *exception: object) -> None:
        self._answering.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._received is not None and exception == (None, None, None):
            signal.raise_signal(self._received)

    def _note(self, number: int, frame: object) -> None:
        self._received, self.cause = number, _NAMES[signal.Signals(number)]

    def _answer(self, number: int) -> None:
        if number not in _NAMES:
            return
        self._answered.append(number)
        if len(self._answered) == 1:
            self._on_stop()
            tell(f"{_NAMES[signal.Signals(number)]}: stopping after the running step; a checkpoint is written ...")
        elif number == signal.SIGINT and self._answered.count(number) < _LAST_CTRL_C:
            tell("still stopping; a third Ctrl-C ends it at once, without a checkpoint")
        elif number == signal.SIGINT:
            tell("stopped without a checkpoint of this step; run the same command to resume at the one before")
            if os.isatty(1):
                os.write(1, _SHOW_CURSOR)  # a progress bar hides it
            os._exit(128 + number)
