"""SIGTERM while something must first come to an end."""

import os
import signal

import pytest

from bert_keras.termination import Termination


@pytest.fixture
def heard():
    """The signals that came to whoever listened before."""
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_a_signal_that_nobody_acted_on_is_sent_again(heard):
    with Termination() as termination:
        assert not termination
        os.kill(os.getpid(), signal.SIGTERM)
        assert termination
        assert heard == []
    assert heard == [signal.SIGTERM]


def test_one_that_was_acted_on_is_not(heard):
    with pytest.raises(RuntimeError, match="stopped"), Termination():
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("stopped")
    assert heard == []


def test_without_a_signal_nothing_is_sent(heard):
    with Termination():
        pass
    assert heard == []
