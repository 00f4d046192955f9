"""Jobs of remote runners, and a worker that is started again."""

import os
import threading
import types

import pytest
from apache_beam.runners.portability import stager

from pipeline.examples import beam_jobs
from pipeline.examples.beam_jobs import beam_options, beam_pipeline, restart_if_a_worker_dies


@pytest.mark.parametrize("has_pip", [True, False])
def test_beam_runs_pip_only_where_it_is_installed(tmp_path, monkeypatch, has_pip):
    asked = []
    monkeypatch.setattr(stager.subprocess, "check_output", lambda words: asked.append(words[1:]) or b"")
    with monkeypatch.context() as imports:
        imports.setattr("importlib.util.find_spec", lambda name: has_pip or None)
        options = beam_options([])
    stager.Stager.create_job_resources(options, str(tmp_path))
    assert asked == [["-m", "pip", "freeze"]] * has_pip


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"job_id": lambda: "2026-11-22_1"}, "bert-tfx: documents: sent as job 2026-11-22_1\n"),
        ({"_job_id": "job-2"}, "bert-tfx: documents: sent as job job-2\n"),
        ({}, ""),  # a local runner's
    ],
)
def test_a_sent_job_is_told(monkeypatch, capsys, result, said):
    sent = types.SimpleNamespace(**result, wait_until_finish=lambda: None)
    monkeypatch.setattr(beam_jobs.beam.Pipeline, "run", lambda self, **_: sent)
    with beam_pipeline([], "documents"):
        pass
    assert capsys.readouterr().err == said


def test_only_a_closed_channel_is_a_dead_worker(monkeypatch, capsys):
    started = []
    # This process has children of other tests.
    monkeypatch.setattr(beam_jobs.psutil.Process, "children", lambda self, recursive: [])
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    monkeypatch.setenv("BERT_TFX_ATTEMPT", "2")
    with restart_if_a_worker_dies():
        raise RuntimeError("Channel closed prematurely.")
    said = "bert-tfx: a worker was killed (too little memory?): restarting, 2 of 2\n"
    assert len(started) == 1 and capsys.readouterr().err == said
    with pytest.raises(RuntimeError, match="of its own"), restart_if_a_worker_dies():
        raise RuntimeError("of its own")
    assert len(started) == 1


@pytest.mark.parametrize("ends", [True, False])
def test_a_command_that_reports_its_own_error_in_time_is_not_restarted(monkeypatch, ends):
    """A failing stage terminates its workers, too."""
    restarted = threading.Event()
    monkeypatch.setattr(beam_jobs, "_restart", restarted.set)
    monkeypatch.setattr(beam_jobs, "SECONDS_TO_FAIL", 120.0 if ends else 0.01)

    error = types.SimpleNamespace(exc_value=RuntimeError("Worker subprocess exited with return code -9"))
    with restart_if_a_worker_dies():
        hook = threading.Thread(target=threading.excepthook, args=[error])
        hook.start()
        assert ends or restarted.wait(120)
    hook.join()
    assert restarted.is_set() == (not ends)
