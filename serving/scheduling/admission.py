"""A request from the first byte of its body to the last of its answer: admission, memory, deadline and cancellation.

A request is admitted or refused at once (RESOURCE_EXHAUSTED; UNAVAILABLE while the server stops). An admitted request
waits for the engine (`serving.scheduling.scheduler`) until its deadline passes or its client disconnects. Admission and
memory are held until the answer has been sent.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from serving.errors import ServingError

# Python's waits do not accept longer timeouts.
_LONGEST_WAIT = 3600.0
STOPPING = "the server is stopping: ask another one"


@dataclass(frozen=True)
class QueueSettings:
    """Limits of the request queue.

    Attributes:
        max_requests: requests running or queued, over both ports; beyond it RESOURCE_EXHAUSTED, in REST 429.
        rest_timeout_seconds: deadline of REST requests, which have none of their own: DEADLINE_EXCEEDED, 504
            (TensorFlow Serving's rest_api_timeout_in_ms, with its default).
        drain_seconds: time to finish requests when the server stops, within the 30 s of a Kubernetes pod. Then queued
            requests are UNAVAILABLE.
    """

    max_requests: int = 256
    rest_timeout_seconds: float = 30.0
    drain_seconds: float = 25.0

    def __post_init__(self) -> None:
        if self.max_requests < 1:
            raise ValueError(f"max_requests is {self.max_requests}; it must be at least 1")


class RequestContext:
    """Deadline and cancellation of a request, and what it holds.

    Args:
        seconds: time until the deadline; None for no deadline.

    Attributes:
        held: admission and memory; the port closes it once the answer has been sent.
        size: of the request, in bytes, if its port says it.
    """

    size = 0

    def __init__(self, seconds: float | None = None):
        self.held = contextlib.ExitStack()
        self._deadline = None if seconds is None else time.monotonic() + seconds
        asleep = threading.Lock()  # a binary semaphore, which takes a tenth of an Event's time
        asleep.acquire()
        self._sleep: Callable[..., object] = asleep.acquire
        self._wake: Callable[[], object] = asleep.release
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the request; may be called from any thread, even after its end."""
        self._cancelled = True
        self.wake()

    @property
    def has_ended(self) -> bool:
        """Return whether nobody waits for the answer any more."""
        return self._cancelled or (self._deadline is not None and time.monotonic() >= self._deadline)

    def check(self) -> None:
        """Raise DEADLINE_EXCEEDED or CANCELLED if the request has ended."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise ServingError(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the request was answered")
        if self._cancelled:
            raise ServingError(grpc.StatusCode.CANCELLED, "the client went away before the request was answered")

    def wake(self) -> None:
        """Make who waits look again."""
        with contextlib.suppress(RuntimeError):  # awake already, or its loop has ended
            self._wake()

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Block until `done`, which each `wake` looks at; DEADLINE_EXCEEDED or CANCELLED if the request ends before."""
        while not done():
            self.check()
            self._sleep(timeout=self._remaining)

    async def until(self, done: Callable[[], bool]) -> None:
        """Await what `wait_until` blocks for, in an event loop."""
        loop, awake = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(awake.set)
        while not done():
            self.check()
            timer = loop.call_later(self._remaining, awake.set)
            try:
                await awake.wait()
            finally:
                timer.cancel()
            awake.clear()

    @property
    def _remaining(self) -> float:
        """Seconds until the deadline."""
        remaining = _LONGEST_WAIT if self._deadline is None else self._deadline - time.monotonic()
        return min(max(remaining, 0.0), _LONGEST_WAIT)


class Admission:
    """Limits the requests in the server (`inside`), their memory and that of answers; refuses all once it stops."""

    def __init__(self, max_requests: int, free_bytes: int):
        self._max_requests, self._all_bytes, self._free_bytes = max_requests, free_bytes, free_bytes
        self.inside = 0
        self._closed = False
        self._changed = threading.Condition()

    def admit(self, context: RequestContext) -> None:
        """Admit a request until its end; RESOURCE_EXHAUSTED at the limit, UNAVAILABLE once closed."""
        with self._changed:
            if self._closed:
                raise ServingError(grpc.StatusCode.UNAVAILABLE, STOPPING)
            if self.inside >= self._max_requests:
                raise ServingError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self.inside} requests are running or queued already: ask again later, or another server",
                )
            self._hold(context, 1, 0)

    def reserve(self, context: RequestContext, size: int) -> None:
        """Reserve `size` bytes until the request's end; RESOURCE_EXHAUSTED if fewer are free."""
        with self._changed:
            if size > self._free_bytes:
                free, most = self._free_bytes, self._all_bytes
                why = f"the request and its answer may take {size} bytes; others leave {free}: ask again later"
                if size > most:  # clients repeat what got a 429
                    why = (
                        f"the request and its answer may take {size} bytes; at most {most}: send fewer or shorter rows"
                    )
                raise ServingError(grpc.StatusCode.RESOURCE_EXHAUSTED, why, 413 if size > most else 429)
            self._hold(context, 0, size)

    def close(self, seconds: float) -> bool:
        """Admit no more requests and wait for the admitted ones; False if some are left after `seconds`."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: not self.inside, seconds)

    def _hold(self, context: RequestContext, requests: int, size: int) -> None:
        def change(sign: int) -> None:
            with self._changed:
                self.inside += sign * requests
                self._free_bytes -= sign * size
                self._changed.notify_all()

        change(1)
        context.held.callback(change, -1)
