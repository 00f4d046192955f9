"""Clients in closed loops, and percentiles of their latencies."""

import threading
import time
from collections.abc import Callable, Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank: the smallest value not exceeded by at least `percent` of the values."""
    if not values:
        raise ValueError("no values")
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(int(rank), 1) - 1]


def closed_loop(calls: Sequence[Callable[[int], object]], seconds: float, texts: int) -> tuple[list[float], float]:
    """Run every client in its own thread, one request at least, one after the other, until `seconds` are over.

    Args:
        calls: one per client, called with the number of a text; exceptions are raised again.
        seconds: no request but a client's first starts later.
        texts: number of texts; the clients start at different ones.

    Returns: seconds of every request; seconds from the start to the last answer.
    """
    taken: list[list[float]] = [[] for _ in calls]
    failed: list[BaseException] = []
    start = threading.Barrier(len(calls) + 1)
    end = [0.0]

    def client(number: int, call: Callable[[int], object]) -> None:
        text = number * texts // len(calls)
        start.wait()
        try:
            began = time.perf_counter()
            while not failed:
                call(text % texts)
                taken[number].append(time.perf_counter() - began)
                text += 1
                if (began := time.perf_counter()) >= end[0]:
                    return
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=client, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    end[0] = began + seconds
    start.wait()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [duration for client in taken for duration in client], time.perf_counter() - began
