"""A version appears in the serving folder atomically, with its lineage."""

import errno
import json
import os
import shutil

import pytest
from tfx.components.pusher import executor as pusher_executor
from tfx.dsl.io import fileio
from tfx.dsl.io.filesystem_registry import DEFAULT_FILESYSTEM_REGISTRY
from tfx.dsl.io.plugins.tensorflow_gfile import TensorflowFilesystem
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from components.pusher import component as executor
from components.pusher import lineage
from components.pusher.component import STAGING, Executor
from tests.support.examples.task_rows import written

FILES = {"saved_model.pb": b"graph", "variables/variables.index": b"index", "assets.extra/x": b""}
LOG = b'{"kind": "train", "step": 10}\n{"kind": "train", "step": 20}\n{"kind": "eval", "step": 20}\n'
LINEAGE = "assets.extra/lineage.json"


@pytest.fixture
def push(tmp_path, monkeypatch):
    """`push()` runs the executor on a blessed model and returns its artifact."""
    monkeypatch.setattr(lineage, "evaluated", lambda folder: {"mlm_accuracy": 0.5, "example_count": 3.0})

    def push(blessed=True, servable=True, run="", base=f"{tmp_path}/serving", **properties):
        inputs = {
            "model": standard_artifacts.Model(),
            "model_run": standard_artifacts.ModelRun(),
            "model_blessing": standard_artifacts.ModelBlessing(),
            "infra_blessing": standard_artifacts.InfraBlessing(),
            "evaluation": standard_artifacts.ModelEvaluation(),
        }
        for name, artifact in inputs.items():
            artifact.uri = str(tmp_path / name)
        written(tmp_path, "model_run/log.jsonl", LOG)
        for name, content in FILES.items():
            written(tmp_path / "model/Format-Serving", name, content)
        inputs["model"].id = 7
        inputs["model_blessing"].set_int_custom_property("blessed", int(blessed))
        inputs["infra_blessing"].set_int_custom_property("blessed", int(servable))
        pushed = standard_artifacts.PushedModel()
        pushed.uri = str(tmp_path / run / "pushed")
        destination = pusher_pb2.PushDestination()
        destination.filesystem.base_directory = base
        Executor().Do(
            {name: [artifact] for name, artifact in inputs.items()},
            {"pushed_model": [pushed]},
            {"push_destination": proto_utils.proto_to_json(destination), **properties},
        )
        return pushed

    return push


@pytest.fixture
def versions(tmp_path):
    """Content of the serving folder, by name."""
    return lambda: sorted(path.name for path in (tmp_path / "serving").glob("*"))


def files_of(folder):
    """Content of each file, by its path in the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def set_clock(monkeypatch, seconds):
    monkeypatch.setattr(pusher_executor.time, "time", lambda: seconds)


def test_a_blessed_model_is_pushed(tmp_path, monkeypatch, push, versions):
    set_clock(monkeypatch, 1234.5)
    artifact = push(custom_config='{"decontaminated": [{"name": "dev.tsv", "sha256": "1"}], "language": "en"}')
    assert versions() == ["1234"]
    folder = tmp_path / "serving/1234"
    pushed = files_of(folder)
    assert json.loads(pushed.pop(LINEAGE)) == {
        "version": "1234",
        "pushed": "1970-01-01T00:20:34Z",
        "blessed": None,  # the time is in ML Metadata
        "pipeline": None,
        "run": None,
        "model": 7,
        "steps": 20,
        "scores": {"mlm_accuracy": 0.5},
        "decontaminated": [{"name": "dev.tsv", "sha256": "1"}],
        "language": "en",
        "licence": None,
        "teacher": None,
    }
    assert pushed == FILES
    assert artifact.get_int_custom_property("pushed") == 1
    assert artifact.get_string_custom_property("pushed_version") == "1234"
    assert artifact.get_string_custom_property("pushed_destination") == str(folder)
    assert (tmp_path / "pushed/saved_model.pb").read_bytes() == b"graph"


def test_a_pushed_model_shares_its_bytes_and_each_copy_can_be_deleted(tmp_path, monkeypatch, push):
    set_clock(monkeypatch, 1000)
    push()
    places = [tmp_path / name for name in ("model/Format-Serving", "pushed", "serving/1000")]
    for name in FILES:
        assert len({(place / name).stat().st_ino for place in places}) == 1, name
    assert [files_of(place).keys() - FILES.keys() for place in places] == [set(), set(), {LINEAGE}]
    for place in places[:2]:
        shutil.rmtree(place)
    assert files_of(places[2]).items() >= FILES.items()


def test_a_serving_folder_on_another_file_system_gets_copies(tmp_path, monkeypatch, push, versions):
    def link(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    push()
    served = tmp_path / "serving" / versions()[0]
    assert files_of(served).items() >= FILES.items()
    assert (served / "saved_model.pb").stat().st_nlink == 1


@pytest.mark.parametrize("missing", ["blessed", "servable"])
def test_a_model_that_is_not_blessed_by_quality_and_serving_is_not_pushed(tmp_path, push, versions, missing):
    artifact = push(**{missing: False})
    assert versions() == [] and not (tmp_path / "serving").exists()
    assert artifact.get_int_custom_property("pushed") == 0
    assert artifact.get_string_custom_property("pushed_version") == ""


def test_versions_increase_even_if_the_clock_does_not(monkeypatch, push, versions, tmp_path):
    (tmp_path / "serving/²").mkdir(parents=True)  # a digit that is no number
    for seconds, expected in [(1000, "1000"), (1000, "1001"), (5, "1002"), (2000, "2000")]:
        set_clock(monkeypatch, seconds)
        assert push().get_string_custom_property("pushed_version") == expected
        assert max({*versions()} - {"²"}, key=int) == expected
    assert versions() == ["1000", "1001", "1002", "2000", "²"]


@pytest.mark.parametrize("copies_done", range(len(FILES)))
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failed_push_leaves_no_version(monkeypatch, push, versions, copies_done, error):
    """At the moment of the failure, without any clean-up: as after a kill."""
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
    # The next push succeeds.
    assert push().get_string_custom_property("pushed_version") == "2000"
    assert versions() == ["1000", "2000"]


@pytest.mark.parametrize("operation", ["copy", "rename"])
def test_two_pipelines_push_to_one_folder_at_once(tmp_path, monkeypatch, push, versions, operation):
    """The other one pushes before the first copy of this one, or takes the number that this one chose."""
    set_clock(monkeypatch, 1000)
    original = getattr(fileio, operation)

    def after_another_push(*args, **kwargs):
        monkeypatch.setattr(fileio, operation, original)
        push(run="other")
        original(*args, **kwargs)

    monkeypatch.setattr(fileio, operation, after_another_push)
    artifact = push(run="one")
    pushed = versions()
    assert pushed == ["1000", "1001"]
    for version in pushed:
        folder = tmp_path / "serving" / version
        assert files_of(folder).items() >= FILES.items()
        assert json.loads((folder / LINEAGE).read_text())["version"] == version
    assert artifact.get_string_custom_property("pushed_version") == pushed[-1]


@pytest.mark.parametrize("copies_done", range(len(FILES) + 2))
def test_a_version_of_an_object_store_has_its_graph_last(monkeypatch, push, copies_done):
    """TensorFlow's file system in memory stands for a store: a push that is killed at any copy."""
    monkeypatch.setitem(DEFAULT_FILESYSTEM_REGISTRY._preferred_filesystem_by_scheme, "ram://", TensorflowFilesystem)
    base, copied = f"ram://serving{copies_done}", []

    def copy(src, dst, overwrite=False, original=fileio.copy):
        if dst.startswith(f"{base}/1000"):
            if len(copied) == copies_done:
                raise KeyboardInterrupt
            copied.append(dst.removeprefix(f"{base}/1000/"))
        original(src, dst, overwrite)

    set_clock(monkeypatch, 1000)
    monkeypatch.setattr(fileio, "copy", copy)
    if copies_done <= len(FILES):
        with pytest.raises(KeyboardInterrupt):
            push(base=base)
    else:
        push(base=base)
        assert json.loads(fileio.open(f"{base}/1000/{LINEAGE}").read())["version"] == "1000"
    assert fileio.exists(f"{base}/1000/saved_model.pb") == (len(copied) > len(FILES))
    assert {*copied} <= {*FILES, LINEAGE} and len(copied) == min(copies_done, len(FILES) + 1)
    assert [name.rstrip("/") for name in fileio.listdir(base)] == ["1000"]


@pytest.mark.parametrize(("renamed", "expected"), [(False, ["1000"]), (True, ["1000", "2000"])])
def test_a_kill_leaves_only_complete_versions(tmp_path, monkeypatch, push, versions, renamed, expected):
    """Before the rename that publishes a version, and after it. A killed process removes nothing."""
    set_clock(monkeypatch, 1000)
    push()
    set_clock(monkeypatch, 2000)

    def killed(src, dst, *args, original=fileio.rename):
        if renamed:
            original(src, dst, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fileio, "rename", killed)
        patch.setattr(executor, "_remove", lambda folder: None)
        with pytest.raises(KeyboardInterrupt):
            push()
    assert [name for name in versions() if name.isdigit()] == expected
    for version in expected:
        assert files_of(tmp_path / "serving" / version).keys() == {*FILES, LINEAGE}
    assert any(files_of(path) for path in (tmp_path / "serving").glob(f"{STAGING}*")) == (not renamed)
    push()
    assert len(versions()) == len(expected) + 1 and all(name.isdigit() for name in versions())
