"""What Beam says of a worker that is gone; the real thing is in tests/e2e/test_example_generation.py."""

import os

import pytest

from pipeline import worker_restart


def test_a_closed_channel_is_a_dead_worker_and_no_other_error_is(monkeypatch):
    started, told = [], []
    # Those of other tests live in this process.
    monkeypatch.setattr(worker_restart.psutil.Process, "children", lambda self, recursive: [])
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    monkeypatch.setenv("BERT_TFX_ATTEMPT", "2")
    with worker_restart.start_again_if_a_worker_dies(told.append):
        raise RuntimeError("Channel closed prematurely.")
    assert len(started) == 1 and told == ["a worker was killed (too little memory?): starting again, 2 of 2"]
    with (
        pytest.raises(RuntimeError, match="of its own"),
        worker_restart.start_again_if_a_worker_dies(told.append),
    ):
        raise RuntimeError("of its own")
    assert len(started) == 1
