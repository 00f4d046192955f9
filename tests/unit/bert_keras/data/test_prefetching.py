"""Values are computed ahead by one thread, which ends with its consumer."""

import threading
import time

import pytest

from bert_keras.data.prefetching import prefetched
from tests.support.processes import run_python


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetched")]


def test_values_come_in_order_and_are_computed_ahead():
    made = []

    def values():
        for value in range(50):
            made.append(value)
            yield value

    read = prefetched(values(), 3)
    assert [next(read) for _ in range(5)] == list(range(5))
    deadline = time.monotonic() + 10
    while len(made) < 8 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert made == list(range(8))  # five that were read, and three
    assert list(read) == list(range(5, 50))
    assert not threads()


def test_an_error_is_raised_after_the_values_before_it():
    def values():
        yield from range(3)
        raise ValueError("record 3")

    read = prefetched(values(), 8)
    assert [next(read) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="record 3"):
        next(read)
    assert not threads()


def test_closing_ends_the_thread_and_closes_the_values():
    made, closed = [], []

    def values():
        try:
            while True:
                made.append(0)
                yield time.sleep(0.01)
        finally:
            closed.append(True)

    source = values()
    read = prefetched(source, 100)
    next(read)
    assert len(threads()) == 1
    read.close()
    assert closed and not threads()
    assert len(made) < 50  # those that waited are not computed


def test_an_interpreter_ends_while_values_are_computed():
    code = """
import itertools, time
from bert_keras.data.prefetching import prefetched
def values():
    for value in itertools.count():
        time.sleep(0.01)
        yield value
read = prefetched(prefetched(values(), 2), 4)
assert next(read) == 0
"""
    run_python("-c", code)
