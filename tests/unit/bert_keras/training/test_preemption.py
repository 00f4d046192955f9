"""SIGTERM and Ctrl-C while something must first come to an end."""

import signal

import pytest

from bert_keras.training.preemption import Termination


@pytest.fixture
def heard():
    """The signals that came to whoever listened before."""
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_an_unhandled_signal_is_sent_again(heard):
    with Termination() as termination:
        assert not termination
        signal.raise_signal(signal.SIGTERM)
        assert termination
        assert heard == []
    assert heard == [signal.SIGTERM]


def test_a_handled_signal_is_not_sent_again(heard):
    with pytest.raises(RuntimeError, match="stopped"), Termination():
        signal.raise_signal(signal.SIGTERM)
        raise RuntimeError("stopped")
    assert heard == []


def test_without_a_signal_nothing_is_sent(heard):
    with Termination():
        pass
    assert heard == []


@pytest.fixture
def ctrl_c_raises():
    """Python's own handler; a background job of a shell starts with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_ctrl_c_stops_at_once(capfd, ctrl_c_raises):
    with pytest.raises(KeyboardInterrupt), Termination() as termination:
        signal.raise_signal(signal.SIGINT)
        assert termination and termination.cause == "Ctrl-C"
        assert "Ctrl-C again stops at once" in capfd.readouterr().err
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")
