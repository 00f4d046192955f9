"""Beam's error for a dead worker; tests/e2e/test_example_generation.py kills a real one."""

import os

import pytest

from pipeline.examples import worker_restart


def test_only_a_closed_channel_is_a_dead_worker(monkeypatch):
    started, told = [], []
    # This process has children of other tests.
    monkeypatch.setattr(worker_restart.psutil.Process, "children", lambda self, recursive: [])
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    monkeypatch.setenv("BERT_TFX_ATTEMPT", "2")
    with worker_restart.restart_if_a_worker_dies(told.append):
        raise RuntimeError("Channel closed prematurely.")
    assert len(started) == 1 and told == ["a worker was killed (too little memory?): restarting, 2 of 2"]
    with (
        pytest.raises(RuntimeError, match="of its own"),
        worker_restart.restart_if_a_worker_dies(told.append),
    ):
        raise RuntimeError("of its own")
    assert len(started) == 1
