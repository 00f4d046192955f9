"""A version appears in the serving folder whole or not at all."""

import pytest
from tfx.components.pusher import executor as pusher_executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from components.model_push.executor import STAGING, Executor

FILES = {"saved_model.pb": b"graph", "variables/variables.index": b"index", "assets.extra/x": b""}


@pytest.fixture
def push(tmp_path):
    """`push()` runs the executor on a blessed model; returns the artifact it gives."""

    def push(blessed=True):
        model, blessing = standard_artifacts.Model(), standard_artifacts.ModelBlessing()
        model.uri, blessing.uri = str(tmp_path / "model"), str(tmp_path / "blessing")
        for name, content in FILES.items():
            path = tmp_path / "model/Format-Serving" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        blessing.set_int_custom_property("blessed", int(blessed))
        pushed = standard_artifacts.PushedModel()
        pushed.uri = str(tmp_path / "pushed")
        destination = pusher_pb2.PushDestination()
        destination.filesystem.base_directory = str(tmp_path / "serving")
        Executor().Do(
            {"model": [model], "model_blessing": [blessing]},
            {"pushed_model": [pushed]},
            {"push_destination": proto_utils.proto_to_json(destination)},
        )
        return pushed

    return push


@pytest.fixture
def versions(tmp_path):
    """What the serving folder holds, by name."""
    return lambda: sorted(path.name for path in (tmp_path / "serving").glob("*"))


def set_clock(monkeypatch, seconds):
    monkeypatch.setattr(pusher_executor.time, "time", lambda: seconds)


def test_a_blessed_model_is_pushed(tmp_path, monkeypatch, push, versions):
    set_clock(monkeypatch, 1234.5)
    artifact = push()
    assert versions() == ["1234"]
    folder = tmp_path / "serving/1234"
    assert {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == FILES
    assert artifact.get_int_custom_property("pushed") == 1
    assert artifact.get_string_custom_property("pushed_version") == "1234"
    assert artifact.get_string_custom_property("pushed_destination") == str(folder)
    assert (tmp_path / "pushed/saved_model.pb").read_bytes() == b"graph"


def test_a_model_that_is_not_blessed_is_not_pushed(tmp_path, push, versions):
    artifact = push(blessed=False)
    assert versions() == [] and not (tmp_path / "serving").exists()
    assert artifact.get_int_custom_property("pushed") == 0
    assert artifact.get_string_custom_property("pushed_version") == ""


def test_versions_increase_whatever_the_clock_does(monkeypatch, push, versions):
    for seconds, expected in [(1000, "1000"), (1000, "1001"), (5, "1002"), (2000, "2000")]:
        set_clock(monkeypatch, seconds)
        assert push().get_string_custom_property("pushed_version") == expected
        assert max(versions(), key=int) == expected
    assert versions() == ["1000", "1001", "1002", "2000"]


@pytest.mark.parametrize("copies_done", range(len(FILES)))
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_push_that_stops_half_way_leaves_no_version(monkeypatch, push, versions, copies_done, error):
    """At the moment of the failure, without any cleaning up: as after a kill."""
    copied = []

    def copy(src, dst, overwrite=False, original=fileio.copy):
        if len(copied) == copies_done:
            assert [name for name in versions() if name.isdigit()] == ["1000"]
            raise error
        copied.append(dst)
        original(src, dst, overwrite)

    set_clock(monkeypatch, 1000)
    push()
    set_clock(monkeypatch, 2000)
    with monkeypatch.context() as patch:
        patch.setattr(fileio, "copy", copy)
        with pytest.raises(error):
            push()
    assert [name for name in versions() if name.isdigit()] == ["1000"]
    # The next push mends it.
    assert push().get_string_custom_property("pushed_version") == "2000"
    assert versions() == ["1000", "2000"]


def test_staging_is_no_version_to_a_server():
    assert not STAGING.isdigit()
