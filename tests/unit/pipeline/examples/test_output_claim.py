"""Lock of an output folder in a store: living, dead and displaced owners."""

import itertools
import json
import threading

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from bert_keras.errors import InputError, StageError
from pipeline.examples import output_claim
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
