"""The rows of a request, and the calls of an engine that take them.

    request -> Job: its rows, short ones first -> Call: rows of like length, of one request or of several -> its answer

A call has as many rows as fit in the engine's budget. So memory is bounded. Rows of a request that fit in one call are
computed together. A larger request is divided: its short texts are not padded to its long ones, and it ends between two
calls when its client is gone. Sharing a call must not change an answer: see `serving.scheduling.row_load`. If a
shared call fails, each of its requests is computed again alone: an invalid text fails only its own request.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import NamedTuple, Protocol

import grpc
import numpy as np

from serving import errors
from serving.protos import SignatureDef
from serving.scheduling.admission import RequestContext
from serving.scheduling.row_load import Budget, Load, is_varying, marker, row_widths, together

Arrays = dict[str, np.ndarray]

# The longest row of a call has at most this many times the word pieces of its shortest, and so many more.
_SPREAD, _SLACK = 1.5, 16
# Errors of engines refer to rows like this: "text 3 has no [MASK]", "Key: text, Index: 3".
_ROW_NAMED = re.compile(r"\b(text|row|Index:) (\d+)\b")


class Engine(Protocol):
    """Computes the outputs of a signature for inputs, all rows together; a ServingError names rows of these inputs."""

    def compute(self, name: str, inputs: Mapping[str, np.ndarray]) -> Arrays: ...


@dataclass(eq=False)
class Job:
    """The rows of a request in one signature, and the answers so far. Calls take its units one after another.

    Args:
        engine, name, signature: what computes the rows.
        wanted: names of the wanted outputs.
        loads: of the rows.
        answer_bytes: upper bound of the memory of the wanted outputs.
        divides: whether rows may be computed in several calls; else all are computed in one, by themselves.
        shares: whether rows of other requests may join a call.
        sizes: the sizes that calls are padded to; () for none.
        pad: the padding of `tokens` [B, T].

    Attributes:
        order: rows in order of length; None if all are computed together.
        units: what a call takes or leaves, one row of a divided request or all rows: number of rows, and their load.
        taken: number of units that calls have taken.
        input_bytes: size of all texts.
        context: of the request; it is woken when the answer, or an error, is there.
    """

    engine: Engine
    name: str
    signature: SignatureDef
    wanted: Sequence[str]
    inputs: Mapping[str, np.ndarray]
    loads: InitVar[Sequence[Load]]
    answer_bytes: int
    budget: Budget
    divides: InitVar[bool]
    shares: bool
    sizes: Sequence[int] = ()
    pad: bytes = b"[PAD]"

    def __post_init__(self, loads: Sequence[Load], divides: bool) -> None:
        self.context = RequestContext()
        self.shares = self.shares and divides
        self.order: np.ndarray | None = None
        self.units = [(len(loads), together(loads))]
        self.input_bytes = self.units[0][1].bytes
        if divides and not self.budget.holds(*self.units[0]):
            shortest_first = sorted(range(len(loads)), key=lambda row: loads[row].tokens)
            self.order, self.units = np.array(shortest_first), [(1, loads[row]) for row in shortest_first]
        self.taken = 0
        self._answers: list[tuple[int, int, Arrays]] = []
        self._error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Return whether the answer, or an error, is there."""
        return self._error is not None or sum(end - begin for begin, end, _ in self._answers) == len(self.units)

    @property
    def waiting_rows(self) -> int:
        """Number of rows that no call has taken."""
        return (len(self.units) - self.taken) * self.units[0][0]  # several units are of one row each

    @property
    def is_over(self) -> bool:
        """Return whether no more rows need to be computed."""
        return self.is_done or self.context.has_ended

    def answer(self, begin: int, end: int, outputs: Arrays) -> None:
        """Keep the wanted outputs of units that a call had taken; may be called from several threads."""
        self._answers.append((begin, end, outputs))
        if self.is_done:
            self.context.wake()

    def fail(self, error: BaseException, begin: int = 0) -> None:
        """End the job with the error of a call from unit `begin` on; its row numbers become the request's."""
        if isinstance(error, errors.ServingError) and self.order is not None:
            rows = self.order[begin:]

            def renamed(match: re.Match[str]) -> str:
                return f"{match[1]} {rows[int(match[2])] if int(match[2]) < len(rows) else match[2]}"

            error = errors.ServingError(error.code, _ROW_NAMED.sub(renamed, str(error), count=1))
        self._error = error
        self.context.wake()

    def result(self) -> Arrays:
        """The wanted outputs of all rows, padded to the width of the widest call; the error, if there is one."""
        if self._error is not None:
            raise self._error
        order, outputs = self.order, self._answers[0][2]
        if order is None:
            return outputs
        outputs = {}
        for name in self.wanted:
            arrays = [answer.pop(name) for _, _, answer in self._answers]  # frees them one by one
            shape = (len(order), *np.max([array.shape[1:] for array in arrays], axis=0).astype(int))
            padding = self.pad if name == "tokens" and len(shape) == 2 else b""
            whole = np.full(shape, padding if arrays[0].dtype == object else 0, arrays[0].dtype)
            for (begin, end, _), array in zip(self._answers, arrays, strict=True):
                whole[(order[begin:end], *map(slice, array.shape[1:]))] = array
            outputs[name] = whole
        return outputs

    def run(self) -> Arrays:
        """Compute the outputs now, in this thread."""
        while not self.is_done:
            call = Call(self.budget)
            call.take(self)
            call.compute()
        return self.result()


class _Part(NamedTuple):
    """Units of a job, from `begin` to `end`."""

    job: Job
    begin: int
    end: int

    @property
    def row_count(self) -> int:
        return sum(rows for rows, _ in self.job.units[self.begin : self.end])

    def rows_of(self, name: str) -> np.ndarray:
        rows = self.job.inputs[name]
        return rows if self.job.order is None else rows[self.job.order[self.begin : self.end]]


class Call:
    """Rows that are computed together, within `budget`; those of a first request are joined by others up to `share`."""

    def __init__(self, budget: Budget, share: int = sys.maxsize):
        self._budget, self._share = budget, min(share, budget.rows)
        self._parts: list[_Part] = []
        self._rows, self._narrowest, self._largest = 0, 0, together([])
        self._is_full = False  # had no room for rows of like length

    @property
    def may_grow(self) -> bool:
        """Return whether rows of other requests may join."""
        return self._parts[0].job.shares and not self._is_full and self._rows < self._share

    def take(self, job: Job) -> None:
        """Take the next units of a job, as many as fit, unless it may not share this call."""
        if self._parts:
            first = self._parts[0].job
            if not (first.shares and job.shares and first.engine is job.engine and first.name == job.name):
                return
        begin = job.taken
        while job.taken < len(job.units) and self._takes(*job.units[job.taken]):
            job.taken += 1
        if job.taken > begin:
            self._parts.append(_Part(job, begin, job.taken))

    def _takes(self, rows: int, load: Load) -> bool:
        if not self._rows:
            self._rows, self._narrowest, self._largest = rows, load.tokens, load
            return True
        rows, narrowest, largest = self._rows + rows, min(self._narrowest, load.tokens), together([self._largest, load])
        if largest.tokens > _SPREAD * narrowest + _SLACK:
            return False
        if not self._budget.holds(rows, largest):
            self._is_full = True
            return False
        self._rows, self._narrowest, self._largest = rows, narrowest, largest
        return True

    def compute(self) -> None:
        """Compute the rows whose requests still wait, and give each request its own."""
        if parts := [part for part in self._parts if not part.job.is_over]:
            _compute(parts)


def _compute(parts: Sequence[_Part]) -> None:
    try:
        answers = _answers(parts)
    except BaseException as error:
        if len(parts) == 1:
            parts[0].job.fail(error, parts[0].begin)
        else:
            for part in parts:
                _compute([part])
        return
    for (job, begin, end), outputs in zip(parts, answers, strict=True):
        job.answer(begin, end, outputs)


def _answers(parts: Sequence[_Part]) -> list[Arrays]:
    """The wanted outputs of each part."""
    job = parts[0].job
    if job.order is None and len(parts) == 1 and not (job.shares and job.sizes):
        outputs = job.engine.compute(job.name, job.inputs)
        return [{name: outputs[name] for name in job.wanted}]
    inputs = {name: np.concatenate([part.rows_of(name) for part in parts]) for name in job.inputs}
    rows = sum(part.row_count for part in parts)
    size = next((size for size in job.sizes if size >= rows), rows)
    if job.shares and size > rows:
        inputs = {name: np.concatenate([array, array[-1:].repeat(size - rows, 0)]) for name, array in inputs.items()}
    outputs = job.engine.compute(job.name, inputs)
    varying = [name for name, info in job.signature.outputs.items() if len(parts) > 1 and is_varying(info)]
    has_rows = all(array.shape[:1] == (size,) for array in outputs.values())
    if (len(parts) > 1 or job.order is not None) and not has_rows:
        raise errors.ServingError(grpc.StatusCode.INTERNAL, f"{job.name} answered another number of rows than {size}")
    widths = row_widths(name := marker(job.signature), outputs[name]) if varying else None
    answers, first = [], 0
    for part in parts:
        last = first + part.row_count
        answer = {name: outputs[name][first:last] for name in part.job.wanted}
        if widths is not None:  # without the columns that only rows of others need
            width = widths[first:last].max()
            answer |= {name: answer[name][:, :width] for name in varying if name in answer}
        answers.append(answer)
        first = last
    return answers
