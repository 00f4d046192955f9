"""How many requests are in the server, who of them computes, and who waits no longer.

A request is admitted or turned away at once (RESOURCE_EXHAUSTED; UNAVAILABLE while the server stops). Admitted, it
takes its turn, first come first served. Whoever waits beyond its deadline, or for a client that went away, is not
computed. TensorFlow's own queue of batches, which cannot skip a task, holds at most the next batches (`Turns`).
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import grpc

from serving.errors import ServingError

# Python's waits take no longer ones.
_LONGEST_WAIT = 3600.0


@dataclass(frozen=True)
class QueueSettings:
    """How much the server takes on.

    Attributes:
        max_requests: requests that compute or wait, over both ports; one more is RESOURCE_EXHAUSTED, in REST 429.
        max_running: of those outside of batches, how many compute at once.
        rest_timeout_seconds: REST has no deadlines of its own: beyond it a request is DEADLINE_EXCEEDED, 504
            (TensorFlow Serving's rest_api_timeout_in_ms, with its default).
        drain_seconds: how long requests under way have when the server stops.
    """

    max_requests: int = 256
    max_running: int = 4
    rest_timeout_seconds: float = 30.0
    drain_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("max_requests", "max_running"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


class Call:
    """A request as its client sees it: how long it may take, and whether anyone still waits for the answer.

    Args:
        seconds: from now; None for any time.
    """

    def __init__(self, seconds: float | None = None):
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._woken = threading.Event()
        self._cancelled = False

    def cancel(self) -> None:
        """Nobody waits any more; may come from any thread, and late."""
        self._cancelled = True
        self._woken.set()

    def check(self) -> None:
        """DEADLINE_EXCEEDED or CANCELLED, if so."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise ServingError(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the request's turn came")
        if self._cancelled:
            raise ServingError(grpc.StatusCode.CANCELLED, "the client went away before the request's turn came")

    def rearm(self) -> None:
        """Before another wait: only what comes from now on wakes."""
        self._woken.clear()
        if self._cancelled:
            self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def wait(self) -> None:
        """Until woken, cancelled, or the deadline."""
        left = _LONGEST_WAIT if self._deadline is None else self._deadline - time.monotonic()
        self._woken.wait(min(max(left, 0.0), _LONGEST_WAIT))


class Turns:
    """At most `running` requests at once; the others wait in the order in which they came."""

    def __init__(self, running: int):
        self._free = running
        self._waiting: deque[Call] = deque()
        self._granted: set[Call] = set()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many requests wait now."""
        return len(self._waiting)

    @contextlib.contextmanager
    def taken(self, call: Call) -> Iterator[None]:
        """Waits for a turn; DEADLINE_EXCEEDED or CANCELLED if `call` ends before."""
        self._take(call)
        try:
            call.check()
            yield
        finally:
            self._give_back()

    def _take(self, call: Call) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            call.rearm()
            self._waiting.append(call)
        while True:
            call.wait()
            with self._lock:
                if call in self._granted:
                    self._granted.remove(call)
                    return
                try:
                    call.check()
                except ServingError:
                    self._waiting.remove(call)
                    raise

    def _give_back(self) -> None:
        with self._lock:
            if self._waiting:
                # From hand to hand: nobody who comes now overtakes.
                following = self._waiting.popleft()
                self._granted.add(following)
                following.wake()
            else:
                self._free += 1


class Admission:
    """Counts the requests inside, and lets none in once the server stops."""

    def __init__(self, max_requests: int):
        self._max_requests = max_requests
        self._inside = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """RESOURCE_EXHAUSTED where it is full, UNAVAILABLE once closed."""
        with self._changed:
            if self._closed:
                raise ServingError(grpc.StatusCode.UNAVAILABLE, "the server is stopping: ask another one")
            if self._inside >= self._max_requests:
                raise ServingError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self._inside} requests compute or wait already: ask again later, or another server",
                )
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self, seconds: float) -> bool:
        """Lets no one in any more, and waits for those inside; False if some are left after `seconds`."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: not self._inside, seconds)
