"""Turns, deadlines and bounds, without a model."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import grpc
import pytest

from serving.errors import ServingError
from serving.request_queue import Admission, Call, QueueSettings, Turns


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def test_turns_go_first_come_first_served(pool: ThreadPoolExecutor) -> None:
    turns, computed = Turns(2), []
    ends = [threading.Event() for _ in range(8)]

    def ask(number: int) -> None:
        with turns.taken(Call()):
            computed.append(number)
            ends[number].wait(30)

    try:
        futures = []
        for number in range(8):
            futures.append(pool.submit(ask, number))
            wait_for(lambda: len(computed) + turns.waiting == number + 1)  # noqa: B023
        for number in range(8):
            # Two compute, and only when one of them ends does the next one begin.
            so_far = min(number + 2, 8)
            wait_for(lambda: len(computed) >= so_far)  # noqa: B023
            assert sorted(computed) == list(range(so_far)) and turns.waiting == 8 - so_far
            ends[number].set()
            futures[number].result(30)
    finally:
        for end in ends:
            end.set()


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "CANCELLED"])
def test_who_waits_no_longer_is_not_computed_and_others_are(pool: ThreadPoolExecutor, code: str) -> None:
    turns, computed = Turns(1), []
    go = threading.Event()

    def ask(name: str, call: Call) -> None:
        with turns.taken(call):
            computed.append(name)
            go.wait(30)

    first = pool.submit(ask, "first", Call())
    wait_for(lambda: computed == ["first"])
    impatient = Call(0.1 if code == "DEADLINE_EXCEEDED" else None)
    futures: list[Future[None]] = [pool.submit(ask, "impatient", impatient)]
    wait_for(lambda: turns.waiting == 1)
    futures.append(pool.submit(ask, "last", Call(60)))
    wait_for(lambda: turns.waiting == 2)
    if code == "CANCELLED":
        impatient.cancel()
    with pytest.raises(ServingError) as raised:
        futures[0].result(30)
    # Told at once, while the first one still computes.
    assert raised.value.code.name == code and turns.waiting == 1 and not first.done()
    go.set()
    futures[1].result(30)
    assert computed == ["first", "last"]
    # All turns have come back.
    with turns.taken(Call(0.5)):
        pass


def test_a_deadline_that_passed_before_takes_no_turn() -> None:
    turns = Turns(1)
    for call in (Call(0), Call(-1)):
        with pytest.raises(ServingError, match="deadline"), turns.taken(call):
            raise AssertionError("computed")
    with turns.taken(Call(1e12)):
        pass


def test_admission_is_bounded_and_closes() -> None:
    admission = Admission(2)
    with admission.entered():
        with admission.entered():
            with pytest.raises(ServingError) as raised, admission.entered():
                raise AssertionError("entered")
            assert raised.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED and raised.value.http_status == 429
        with admission.entered():
            pass
        assert not admission.close(0.01)
    assert admission.close(0.01)
    with pytest.raises(ServingError) as raised, admission.entered():
        raise AssertionError("entered")
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE and raised.value.http_status == 503


def test_settings_refuse_what_cannot_serve() -> None:
    with pytest.raises(ValueError, match="max_requests is 0"):
        QueueSettings(max_requests=0)
