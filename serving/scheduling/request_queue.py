"""Admission control, queueing, deadlines and cancellation of requests.

A request is admitted or refused at once (RESOURCE_EXHAUSTED; UNAVAILABLE while the server stops). Admitted requests
wait in order of arrival (FIFO). A request is not computed if its deadline passes, or its client disconnects, before its
turn. TensorFlow's own batch queue cannot skip requests, so `ConcurrencyLimiter` lets it hold only the next batches.
Admission and memory are held until the answer has been sent.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import grpc

from serving.errors import ServingError

# Python's waits do not accept longer timeouts.
_LONGEST_WAIT = 3600.0
_STOPPING = "the server is stopping: ask another one"


@dataclass(frozen=True)
class QueueSettings:
    """Limits of the request queue.

    Attributes:
        max_requests: requests running or queued, over both ports; beyond it RESOURCE_EXHAUSTED, in REST 429.
        max_running: requests computed at once outside of batches.
        rest_timeout_seconds: deadline of REST requests, which have none of their own: DEADLINE_EXCEEDED, 504
            (TensorFlow Serving's rest_api_timeout_in_ms, with its default).
        drain_seconds: time to finish requests when the server stops, within the 30 s of a Kubernetes pod. Then queued
            requests are UNAVAILABLE.
    """

    max_requests: int = 256
    max_running: int = 4
    rest_timeout_seconds: float = 30.0
    drain_seconds: float = 25.0

    def __post_init__(self) -> None:
        for name in ("max_requests", "max_running"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


class RequestContext:
    """Deadline and cancellation of a request, and what it holds.

    Args:
        seconds: time until the deadline; None for no deadline.

    Attributes:
        held: admission and memory; the port closes it once the answer has been sent.
    """

    def __init__(self, seconds: float | None = None):
        self.held = contextlib.ExitStack()
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._woken = threading.Event()
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the request; may be called from any thread, even after its end."""
        self._cancelled = True
        self._woken.set()

    def check(self) -> None:
        """Raise DEADLINE_EXCEEDED or CANCELLED if the request has ended."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise ServingError(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the request was answered")
        if self._cancelled:
            raise ServingError(grpc.StatusCode.CANCELLED, "the client went away before the request was answered")

    def rearm(self) -> None:
        """Forget earlier wake-ups, before another wait."""
        self._woken.clear()
        if self._cancelled:
            self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def wait(self) -> None:
        """Block until woken, cancelled, or the deadline."""
        left = _LONGEST_WAIT if self._deadline is None else self._deadline - time.monotonic()
        self._woken.wait(min(max(left, 0.0), _LONGEST_WAIT))


class ConcurrencyLimiter:
    """FIFO semaphore: requests of at most `running` rows in all run at once; the others wait in order of arrival."""

    def __init__(self, running: int):
        self._running = self._free = running
        self._waiting: deque[tuple[RequestContext, int]] = deque()
        self._granted: set[RequestContext] = set()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiting)

    @contextlib.contextmanager
    def slot(self, context: RequestContext, rows: int = 1) -> Iterator[None]:
        """Hold places for `rows`, waiting for them if need be; DEADLINE_EXCEEDED or CANCELLED if `context` ends before.

        More rows than `running` take all places.
        """
        rows = min(rows, self._running)
        self._take(context, rows)
        try:
            context.check()
            yield
        finally:
            with self._lock:
                self._free += rows
                self._grant()

    def _take(self, context: RequestContext, rows: int) -> None:
        with self._lock:
            if not self._waiting and rows <= self._free:
                self._free -= rows
                return
            context.rearm()
            self._waiting.append((context, rows))
        while True:
            context.wait()
            with self._lock:
                if context in self._granted:
                    self._granted.remove(context)
                    return
                try:
                    context.check()
                    if self._closed:
                        raise ServingError(grpc.StatusCode.UNAVAILABLE, _STOPPING)
                except ServingError:
                    self._waiting.remove((context, rows))
                    self._grant()
                    raise

    def close(self) -> None:
        """Refuse all waiting requests as UNAVAILABLE."""
        with self._lock:
            self._closed = True
            for context, _ in self._waiting:
                context.wake()

    def _grant(self) -> None:
        """Give free places to the first waiters; no one overtakes a request that needs more places."""
        while self._waiting and self._waiting[0][1] <= self._free:
            context, rows = self._waiting.popleft()
            self._free -= rows
            self._granted.add(context)
            context.wake()


class Memory:
    """Budget of memory for the answers in flight."""

    def __init__(self, most: int):
        self._free = most
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes; RESOURCE_EXHAUSTED if fewer are left."""
        with self._lock:
            if size > self._free:
                raise ServingError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"the answer may take {size} bytes; other answers leave {self._free}: ask again later",
                )
            self._free -= size
        try:
            yield
        finally:
            with self._lock:
                self._free += size


class AdmissionControl:
    """Limits the number of requests in the server (`inside`); refuses all once the server stops."""

    def __init__(self, max_requests: int):
        self._max_requests = max_requests
        self.inside = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Admit a request; RESOURCE_EXHAUSTED at the limit, UNAVAILABLE once closed."""
        with self._changed:
            if self._closed:
                raise ServingError(grpc.StatusCode.UNAVAILABLE, _STOPPING)
            if self.inside >= self._max_requests:
                raise ServingError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self.inside} requests are running or queued already: ask again later, or another server",
                )
            self.inside += 1
        try:
            yield
        finally:
            with self._changed:
                self.inside -= 1
                self._changed.notify_all()

    def close(self, seconds: float) -> bool:
        """Admit no more requests and wait for the admitted ones; False if some are left after `seconds`."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: not self.inside, seconds)
