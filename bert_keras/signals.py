"""Signals answered at once, by a thread: the main thread runs no handler while it is in a library's C++ code."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

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
