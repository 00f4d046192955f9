"""What the endurance of serving is measured with: arrivals, drift."""

import contextlib
import itertools

import pytest

from benchmarks.serving import serving_endurance as endurance


def test_arrivals_are_the_same_each_time_and_of_their_rate():
    times = list(itertools.islice(endurance.arrivals(50.0), 10_000))
    assert times == list(itertools.islice(endurance.arrivals(50.0), 10_000))
    assert times == sorted(times)
    assert times[-1] == pytest.approx(200, rel=0.05)


@pytest.mark.parametrize(
    ("values", "percent"),
    [([7.0], 0), ([100.0] * 8 + [110.0] * 2, 10), ([200.0, 1.0, 1.0, 1.0, 100.0], -50), ([10.0, 5.0, 11.0], 10)],
)
def test_drift_is_that_of_the_last_fifth_over_the_first(values, percent):
    assert endurance.drift_percent(values) == pytest.approx(percent)


def test_all_that_is_due_is_asked_whatever_comes_of_it(monkeypatch):
    @contextlib.contextmanager
    def methods(address, count):
        yield ["method"] * 4

    # One step of the interpreter takes the next: no other thread comes between.
    attempts = itertools.cycle(["OK", "UNAVAILABLE"])

    monkeypatch.setattr(endurance, "methods", methods)
    monkeypatch.setattr(endurance, "attempt", lambda method, request: next(attempts))
    taken = endurance.open_loop("address", [b"1", b"2"], 300.0, 0.3)
    due = list(itertools.takewhile(lambda at: at < 0.3, endurance.arrivals(300.0)))
    assert sorted(at for at, _, _ in taken) == due
    assert all(seconds >= 0 for _, seconds, _ in taken)
    assert [code for _, _, code in taken].count("UNAVAILABLE") == len(due) // 2
