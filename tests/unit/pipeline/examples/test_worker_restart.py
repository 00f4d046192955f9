"""Beam's error for a dead worker; tests/e2e/test_example_generation.py kills a real one."""

import os
import threading
import types

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


@pytest.mark.parametrize("stage", ["ends", "waits"])
def test_a_command_that_reports_its_own_error_in_time_is_not_restarted(monkeypatch, stage):
    """A failing stage terminates its workers, too."""
    looked, restarted = [], threading.Event()
    monkeypatch.setattr(worker_restart, "_restart", lambda tell: restarted.set())

    def look(seconds):
        looked.append(seconds)
        if stage == "ends":
            running.set()
            assert ended.wait(120)

    monkeypatch.setattr(worker_restart, "time", types.SimpleNamespace(sleep=look))
    running, ended = threading.Event(), threading.Event()

    def worker():
        raise RuntimeError("Worker subprocess exited with return code -9")

    gone = threading.Thread(target=worker)
    with worker_restart.restart_if_a_worker_dies(print):
        gone.start()
        assert running.wait(120) if stage == "ends" else restarted.wait(120)
    ended.set()
    gone.join()
    assert restarted.is_set() == (stage == "waits") and len(looked) == (1 if stage == "ends" else worker_restart._LOOKS)
