"""Lock of an output folder in a store, and a worker that is started again."""

import itertools
import json
import os
import threading
import types

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import stager

from bert_keras.errors import InputError, StageError
from pipeline.examples import output_claim, worker_restart
from pipeline.examples.beam_jobs import beam_options
from pipeline.examples.output_claim import locked_output_dir
from tests.support.examples.object_stores import SCHEMES, in_memory

ELSEWHERE = {"host": "elsewhere", "pid": 7, "run": "other", "since": "2026-01-01T00:00:00Z", "beat": 0}


@pytest.fixture(params=SCHEMES)
def store(request, monkeypatch):
    FileSystems.set_options(PipelineOptions([]))
    # A living owner is heard at its next beat; only a silent one takes the whole time.
    for name, seconds in (("BEAT_SECONDS", 0.05), ("SILENCE_SECONDS", 120.0), ("SETTLING_SECONDS", 0.0)):
        monkeypatch.setattr(output_claim, name, seconds)
    return in_memory(monkeypatch, request.param)


def claim(store, said=None):
    output = f"{store.scheme}://bucket/out"
    return locked_output_dir(f"{output}/work.part", output, (said if said is not None else []).append)


def put(store, owner):
    store.write(f"{store.scheme}://bucket/out/work.part/owner.json", json.dumps(owner).encode())


def owner(store):
    return json.loads(store.names(f"{store.scheme}://bucket/out")["work.part/owner.json"])


def test_a_living_owner_keeps_the_folder(store):
    ended = threading.Event()

    def live():
        for beat in itertools.count():
            put(store, {**ELSEWHERE, "beat": beat})
            if ended.wait(0.05):
                return

    put(store, ELSEWHERE)
    living = threading.Thread(target=live)
    living.start()
    said = []
    try:
        with (
            pytest.raises(
                InputError,
                match=r"in use by another .* \(process 7 on elsewhere, since 2026-01-01T00:00:00Z\); wait",
            ),
            claim(store, said),
        ):
            pytest.fail("both have it")
    finally:
        ended.set()
        living.join()
    assert len(said) == 1 and "claimed by process 7 on elsewhere" in said[0]
    assert owner(store)["run"] == "other"


def test_a_silent_owner_loses_the_folder_and_fails(store, monkeypatch):
    monkeypatch.setattr(output_claim, "SILENCE_SECONDS", 0.2)
    put(store, ELSEWHERE)
    with claim(store) as check:
        check()
        first = owner(store)
        assert first["run"] != "other" and first["pid"] == output_claim.os.getpid()
        # The new owner lives: it updates its claim.
        displaced, write = threading.Event(), output_claim.write_json

        def displaced_after_a_beat(path, beat):
            # In the thread that beats: no beat can come between.
            write(path, beat)
            assert owner(store)["beat"] > first["beat"]
            put(store, ELSEWHERE)
            displaced.set()

        monkeypatch.setattr(output_claim, "write_json", displaced_after_a_beat)
        assert displaced.wait(120)
        with pytest.raises(StageError, match=r"taken over by process 7 on elsewhere"):
            check()
    # The displaced owner leaves the other's claim alone.
    assert owner(store) == ELSEWHERE


def test_an_ended_process_of_this_machine_loses_the_folder_at_once(store, monkeypatch):
    monkeypatch.setattr(output_claim.psutil, "pid_exists", lambda pid: pid != 7)
    put(store, {**ELSEWHERE, "host": output_claim.socket.gethostname()})
    said = []
    with claim(store, said):
        assert owner(store)["run"] != "other"
    assert not said and not store.names(f"{store.scheme}://bucket/out")


def test_of_two_simultaneous_claims_the_last_one_wins(store, monkeypatch):
    monkeypatch.setattr(output_claim.time, "sleep", lambda seconds: put(store, ELSEWHERE))
    with pytest.raises(InputError, match="process 7 on elsewhere"), claim(store):
        pytest.fail("both have it")
    assert owner(store) == ELSEWHERE


@pytest.mark.parametrize("has_pip", [True, False])
def test_beam_runs_pip_only_where_it_is_installed(tmp_path, monkeypatch, has_pip):
    asked = []
    monkeypatch.setattr(stager.subprocess, "check_output", lambda words: asked.append(words[1:]) or b"")
    with monkeypatch.context() as imports:
        imports.setattr("importlib.util.find_spec", lambda name: has_pip or None)
        options = beam_options([])
    stager.Stager.create_job_resources(options, str(tmp_path))
    assert asked == [["-m", "pip", "freeze"]] * has_pip


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
