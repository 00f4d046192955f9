"""Merges waiting requests into one call of an engine that computes a call on one core.

    request -> waits for a thread -> one call with the waiting requests whose texts are about as long -> its rows

Nothing waits for more requests while a thread is free. TensorFlow's models have an op for this
(`serving.scheduling.batching`).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from serving.protos import SignatureDef
from serving.scheduling.batching import cut_to_own_width, text_bytes

Arrays = dict[str, np.ndarray]

# A call with more rows takes as long a row, and its first request waits for all of them (bench_serving.md).
_MOST_ROWS = 8
# The longest text of a call has at most this many times the bytes of its shortest: padding is computed, too.
_SPREAD = 1.5


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A request: the inputs of `signature` in the order of `answer`'s arguments; alone: no other joins its call."""

    answer: Callable[..., Arrays]
    signature: SignatureDef
    inputs: Mapping[str, np.ndarray]
    rows: int
    longest: int
    alone: bool
    outputs: "Future[Arrays]" = field(default_factory=Future)

    def takes(self, other: "_Waiting") -> bool:
        """True if `other` may join a call that began with this request."""
        short, long = sorted((self.longest, other.longest))
        return not (self.alone or other.alone) and self.answer == other.answer and long <= _SPREAD * short


class Merger:
    """Calls of an engine, in `threads` threads, which end with the object.

    Threads of its own, because one that goes from call to call keeps its core: computing in the threads of the
    requests answered a third fewer at four clients.
    """

    def __init__(self, threads: int):
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="merger")
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()

    def call(
        self, answer: Callable[..., Arrays], signature: SignatureDef, inputs: Mapping[str, np.ndarray], alone: bool
    ) -> Arrays:
        """Outputs by name for a request, as if `answer` had been called with its inputs alone; its errors.

        Args:
            answer: takes the inputs in their order, and returns as many rows as they have.
            alone: compute nothing else with it.
        """
        rows = {len(array) for array in inputs.values()}
        longest = max((sum(map(text_bytes, row)) for row in zip(*inputs.values(), strict=False)), default=0)
        waiting = _Waiting(answer, signature, inputs, max(rows), longest, alone or len(rows) > 1)
        with self._lock:
            self._waiting.append(waiting)
        self._pool.submit(self._work)
        return waiting.outputs.result()

    def _work(self) -> None:
        """Answer the request that has waited longest, with those that it takes; none if others took it along."""
        with self._lock:
            group, left, rows = list[_Waiting](), list[_Waiting](), 0
            for waiting in self._waiting:
                if not group or (rows + waiting.rows <= _MOST_ROWS and group[0].takes(waiting)):
                    group.append(waiting)
                    rows += waiting.rows
                else:
                    left.append(waiting)
            self._waiting = left
        if group:
            _answer(group)


def _answer(group: Sequence[_Waiting]) -> None:
    """Answer requests with one call; after its error each alone, so that only those with a cause fail."""
    try:
        outputs = _outputs(group)
    except BaseException as error:
        if len(group) == 1:
            group[0].outputs.set_exception(error)
        else:
            for waiting in group:
                _answer([waiting])
        return
    for waiting, own in zip(group, outputs, strict=True):
        waiting.outputs.set_result(own)


def _outputs(group: Sequence[_Waiting]) -> list[Arrays]:
    """The outputs of each request."""
    if len(group) == 1:
        return [group[0].answer(*group[0].inputs.values())]
    columns = zip(*(waiting.inputs.values() for waiting in group), strict=True)
    outputs = group[0].answer(*map(np.concatenate, columns))
    own, at = [], 0
    for waiting in group:
        rows = {name: array[at : at + waiting.rows] for name, array in outputs.items()}
        own.append(cut_to_own_width(waiting.signature, rows))
        at += waiting.rows
    return own
