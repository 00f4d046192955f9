"""One queue for all engines: free threads take calls of rows of like length from the requests that wait.

Requests take turns: each call begins with the request that has waited longest since its last one. Nothing waits for
more rows while a thread is free, unless `batch_timeout_micros` says so.

Threads of its own, because one that goes from call to call keeps its core: computing in the threads of the requests
answered a third fewer at four clients. Only a text that comes alone is computed in its request's thread.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from serving.errors import ServingError
from serving.scheduling.admission import STOPPING, RequestContext
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.jobs import Arrays, Call, Job


class Scheduler:
    """Computes jobs in threads, which end with the object.

    Args:
        settings: TensorFlow Serving's batching parameters; None: requests share no call.
    """

    def __init__(self, settings: BatchingSettings | None):
        self._shares, self._settings = settings is not None, settings or BatchingSettings()
        self._pool = ThreadPoolExecutor(self._settings.num_batch_threads, thread_name_prefix="engine")
        self._may_wait = self._settings.batch_timeout_micros > 0
        self._working = 0
        self._jobs: set[Job] = set()  # unanswered, whether their rows wait or are computed
        self._waiting: deque[Job] = deque()
        self._open: list[Call] = []  # calls that wait for more rows
        self._changed = threading.Condition()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of requests with waiting rows."""
        return len(self._waiting)

    def run(self, job: Job, context: RequestContext) -> Arrays:
        """The wanted outputs of a job.

        Errors are the engine's, DEADLINE_EXCEEDED or CANCELLED as soon as `context` ends (of a single row that found
        nothing else in the queue: once it is computed), UNAVAILABLE once closed, and RESOURCE_EXHAUSTED above
        `max_enqueued_batches`.
        """
        with self._inside(job, context, has_thread=True):
            context.wait_until(lambda: job.is_done)
        return job.result()

    async def run_in_loop(self, job: Job, context: RequestContext) -> Arrays:
        """Like `run`, but occupies no thread while the job waits."""
        with self._inside(job, context):
            await context.until(lambda: job.is_done)
        return job.result()

    @contextlib.contextmanager
    def _inside(self, job: Job, context: RequestContext, has_thread: bool = False) -> Iterator[None]:
        context.check()
        job.shares, job.context = job.shares and self._shares, context
        with self._changed:
            # Nothing else waits or is computed: this thread takes the row sooner than another would wake.
            computes = has_thread and job.waiting_rows == 1 and not (self._working or self._closed or self._may_wait)
            if computes:
                self._jobs.add(job)
                self._working += 1
            else:
                self._add(job)
        try:
            if computes:
                call = Call(job.budget)
                call.take(job)
                call.compute()
                with self._changed:
                    self._working -= 1
                    self._start_thread()
            yield
        finally:
            with self._changed:
                self._jobs.remove(job)
                if job in self._waiting:
                    self._waiting.remove(job)

    def close(self) -> None:
        """Refuse new and unanswered requests as UNAVAILABLE, and end the threads after the calls under way."""
        with self._changed:
            self._closed = True
            for job in self._jobs:
                if not job.is_done:
                    job.fail(_stopping())
            self._waiting.clear()
            self._changed.notify_all()
        self._pool.shutdown(wait=False)

    def _add(self, job: Job) -> None:
        if self._closed:
            raise _stopping()
        if self._shares and self._settings.max_enqueued_batches is not None:
            most = self._settings.max_enqueued_batches * self._settings.max_batch_size
            alike = (other for other in self._waiting if other.engine is job.engine and other.name == job.name)
            if (rows := sum(other.waiting_rows for other in alike)) >= most:
                raise ServingError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{rows} rows are in the queue of {job.name}, and it takes {most}: ask again later",
                )
        self._jobs.add(job)
        for call in self._open:
            call.take(job)
        self._changed.notify_all()
        if job.taken < len(job.units):
            self._waiting.append(job)
            self._start_thread()

    def _start_thread(self) -> None:
        """Start a thread, if one is free and requests wait."""
        if self._waiting and self._working < self._settings.num_batch_threads:
            self._working += 1
            self._pool.submit(self._work)

    def _work(self) -> None:
        while (call := self._next_call()) is not None:
            call.compute()

    def _next_call(self) -> Call | None:
        """The next call; None if nothing waits."""
        with self._changed:
            self._drop()
            if not self._waiting:
                self._working -= 1
                return None
            first = self._waiting[0]
            call = Call(first.budget)
            if not self._may_wait:  # leaves the other threads their part
                rows = sum(job.waiting_rows for job in self._waiting)
                call = Call(first.budget, -(-rows // self._settings.num_batch_threads))
            for job in self._waiting:
                call.take(job)
                if not call.may_grow:
                    break
            self._drop()
            if self._waiting and self._waiting[0] is first:
                self._waiting.rotate(-1)
            if self._may_wait and call.may_grow:
                self._fill(call)
            return call

    def _drop(self) -> None:
        """Forget requests without waiting rows, and those that have ended."""
        self._waiting = deque(job for job in self._waiting if job.taken < len(job.units) and not job.is_over)

    def _fill(self, call: Call) -> None:
        """Let a call wait for more rows while it has room for them."""
        self._open.append(call)
        end = time.monotonic() + self._settings.batch_timeout_micros / 1e6
        while call.may_grow and not self._closed and (remaining := end - time.monotonic()) > 0:
            self._changed.wait(remaining)
        self._open.remove(call)


def _stopping() -> ServingError:
    return ServingError(grpc.StatusCode.UNAVAILABLE, STOPPING)
