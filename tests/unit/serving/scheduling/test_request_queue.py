"""Concurrency limits, deadlines and admission, without a model."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import grpc
import pytest

from serving.errors import ServingError
from serving.scheduling.request_queue import AdmissionControl, ConcurrencyLimiter, Memory, QueueSettings, RequestContext


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def test_slots_are_granted_in_order_of_arrival(pool: ThreadPoolExecutor) -> None:
    limiter, computed = ConcurrencyLimiter(2), []
    ends = [threading.Event() for _ in range(8)]

    def ask(number: int) -> None:
        with limiter.slot(RequestContext()):
            computed.append(number)
            ends[number].wait(120)

    try:
        futures = []
        for number in range(8):
            futures.append(pool.submit(ask, number))
            wait_for(lambda: len(computed) + limiter.waiting == number + 1)  # noqa: B023
        for number in range(8):
            # Two run, and the next one starts only when one of them ends.
            so_far = min(number + 2, 8)
            wait_for(lambda: len(computed) >= so_far)  # noqa: B023
            assert sorted(computed) == list(range(so_far)) and limiter.waiting == 8 - so_far
            ends[number].set()
            futures[number].result(120)
    finally:
        for end in ends:
            end.set()


def test_rows_share_the_places_in_order_of_arrival(pool: ThreadPoolExecutor) -> None:
    limiter, computed = ConcurrencyLimiter(4), []
    impatient, end = RequestContext(), threading.Event()

    def ask(rows: int, call: RequestContext) -> None:
        with contextlib.suppress(ServingError), limiter.slot(call, rows):
            computed.append(rows)
            assert end.wait(120)

    asked = []
    try:
        for rows, waiting in ((3, 0), (9, 1), (1, 2)):  # 9 rows take all places, and are not overtaken by 1
            asked.append(pool.submit(ask, rows, impatient if rows == 9 else RequestContext()))
            wait_for(lambda: len(computed) + limiter.waiting == len(asked) and limiter.waiting == waiting)  # noqa: B023
        assert computed == [3]
        impatient.cancel()
        wait_for(lambda: computed == [3, 1])
    finally:
        end.set()
    for one in asked:
        one.result(120)
    with limiter.slot(RequestContext(120), 9):  # all places are free again
        pass


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "CANCELLED"])
def test_ended_requests_leave_the_queue(pool: ThreadPoolExecutor, code: str) -> None:
    limiter, computed = ConcurrencyLimiter(1), []
    go = threading.Event()

    def ask(name: str, call: RequestContext) -> None:
        with limiter.slot(call):
            computed.append(name)
            go.wait(120)

    first = pool.submit(ask, "first", RequestContext())
    wait_for(lambda: computed == ["first"])
    all_queued = threading.Event()

    class Impatient(RequestContext):
        """Its time begins only when all are queued: on a busy machine it would be over before."""

        def wait(self) -> None:
            assert all_queued.wait(120)
            if code == "DEADLINE_EXCEEDED":
                self._deadline = self._deadline or time.monotonic() + 0.1
            super().wait()

    impatient = Impatient()
    futures: list[Future[None]] = [pool.submit(ask, "impatient", impatient)]
    wait_for(lambda: limiter.waiting == 1)
    futures.append(pool.submit(ask, "last", RequestContext(600)))
    wait_for(lambda: limiter.waiting == 2)
    all_queued.set()
    if code == "CANCELLED":
        impatient.cancel()
    with pytest.raises(ServingError) as raised:
        futures[0].result(120)
    # Raised at once, while the first one still runs.
    assert raised.value.code.name == code and limiter.waiting == 1 and not first.done()
    go.set()
    futures[1].result(120)
    assert computed == ["first", "last"]
    # All slots are free again.
    with limiter.slot(RequestContext(120)):
        pass


def test_an_expired_request_gets_no_slot() -> None:
    limiter = ConcurrencyLimiter(1)
    for call in (RequestContext(0), RequestContext(-1)):
        with pytest.raises(ServingError, match="deadline"), limiter.slot(call):
            raise AssertionError("computed")
    with limiter.slot(RequestContext(1e12)):
        pass


def test_admission_is_limited_and_can_be_closed() -> None:
    admission = AdmissionControl(2)
    with admission.admitted():
        with admission.admitted():
            with pytest.raises(ServingError) as raised, admission.admitted():
                raise AssertionError("entered")
            assert raised.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED and raised.value.http_status == 429
        with admission.admitted():
            pass
        assert not admission.close(0.01)
    assert admission.close(0.01)
    with pytest.raises(ServingError) as raised, admission.admitted():
        raise AssertionError("entered")
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE and raised.value.http_status == 503


def test_queued_requests_are_unavailable_after_the_drain(pool: ThreadPoolExecutor) -> None:
    limiter = ConcurrencyLimiter(1)

    def waiting() -> None:
        with limiter.slot(RequestContext(120)):
            raise AssertionError("it has had its turn")

    with limiter.slot(RequestContext(120)):
        late = pool.submit(waiting)
        wait_for(lambda: limiter.waiting == 1)
        limiter.close()
        with pytest.raises(ServingError) as raised:
            late.result(120)
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE and limiter.waiting == 0


def test_invalid_queue_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="max_requests is 0"):
        QueueSettings(max_requests=0)


def test_memory_is_reserved_and_released() -> None:
    memory = Memory(10)
    with memory.reserved(4), memory.reserved(6):
        with (
            pytest.raises(ServingError, match="may take 1 bytes; other answers leave 0") as caught,
            memory.reserved(1),
        ):
            pass
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(KeyError), memory.reserved(10):
        raise KeyError
    with memory.reserved(10):
        pass
