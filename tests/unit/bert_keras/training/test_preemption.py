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


def test_two_ctrl_c_are_answered_and_a_third_ends_the_process(capsys, ctrl_c_raises, monkeypatch):
    requests, codes = [], []
    monkeypatch.setattr("os._exit", codes.append)
    with pytest.raises(RuntimeError, match="stopped"), Termination(lambda: requests.append(1)) as termination:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            assert termination and termination.cause == "Ctrl-C"
        raise RuntimeError("stopped")  # the thread has answered when the block ends
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "bert-tfx: Ctrl-C: stopping after the running step; a checkpoint is written ..."
    assert "a third Ctrl-C ends it at once" in second and "without a checkpoint of this step" in third
    assert (requests, codes) == ([1], [130])
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
