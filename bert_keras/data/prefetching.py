"""Values of an iterator computed ahead, while the consumer works on earlier ones."""

import collections
import concurrent.futures
from collections.abc import Iterator
from typing import TypeVar, cast

T = TypeVar("T")
_END = object()


def prefetched(values: Iterator[T], ahead: int) -> Iterator[T]:
    """The same values in the same order; one thread computes up to `ahead` of them before they are asked for.

    An error of `values` is raised where its value would be. Closing this generator ends the thread and closes `values`.
    """
    with concurrent.futures.ThreadPoolExecutor(1, "prefetched") as thread:
        try:
            waiting = collections.deque(thread.submit(next, values, _END) for _ in range(ahead))
            while (value := waiting.popleft().result()) is not _END:
                waiting.append(thread.submit(next, values, _END))
                yield cast(T, value)
        finally:
            # No queue is ever full, so nothing blocks the thread: it ends after the value that it computes now.
            thread.shutdown(cancel_futures=True)
            getattr(values, "close", lambda: None)()
