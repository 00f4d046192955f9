"""A local run logs to its file and restores logging afterwards; it locks its directory and leaves no other files."""

import contextlib
import logging
import os
import subprocess
import sys
import tempfile

import absl.logging
import apache_beam as beam
import pytest
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

from bert_keras.errors import InputError
from bert_keras.files import locked
from bert_keras.notices import notify, recorded
from pipeline.runners import local, run_steps
from pipeline.runs import resolve
from pipeline.runs.request import RunRequest
from pipeline.runs.run_dir import temporary_run_dir
from tests.support.pipeline.command_line import bert_tfx


@pytest.mark.parametrize(("fails", "more"), [(False, True), (True, True), (False, False)])
def test_messages_go_to_the_log_and_nodes_to_the_terminal(tmp_path, monkeypatch, capfd, fails, more):
    """A node fails, or says that there is no more to do."""

    def run_node(run_dir, run_id, node):
        absl.logging.info("about to run %s", node)
        logging.getLogger("some.library").info("much is said")
        os.write(2, b"C++ says this\n")
        notify("half of the text is never seen")
        if fails:
            raise RuntimeError("a node failed")
        return more

    monkeypatch.setattr(resolve, "_pretraining_inputs", lambda spec, recipe: notify("a hidden file is left out"))
    monkeypatch.setattr(run_steps, "compile_run", lambda spec, run_id: ["Trainer", "ModelPush"])
    monkeypatch.setattr(run_steps, "run_node", run_node)
    monkeypatch.setattr(run_steps, "finish", lambda run_dir, run_id: {"blessed": True})
    root = logging.getLogger()
    before = root.handlers[:], root.level, absl.logging.get_verbosity()
    with pytest.raises(RuntimeError, match="a node failed") if fails else contextlib.nullcontext():
        assert local.run(RunRequest("tiny_cpu", str(tmp_path))) == {"blessed": True}
    assert (root.handlers[:], root.level, absl.logging.get_verbosity()) == before
    out, err = capfd.readouterr()
    nodes = ["Trainer", "ModelPush"][: 2 if more and not fails else 1]
    assert out.split() == nodes
    # Without `run_node` nothing records them.
    told = "bert-tfx: half of the text is never seen\n" * len(nodes)
    assert err == f"bert-tfx: a hidden file is left out\n{told}"
    [inputs] = (tmp_path / "notices").iterdir()
    assert recorded(str(inputs)) == ["a hidden file is left out"]
    log = (tmp_path / "pipeline.log").read_text()
    assert "about to run Trainer" in log
    assert "some.library: much is said" in log
    assert "C++ says this" in log and "half of the text" not in log
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_a_directory_allows_one_run_at_a_time(tmp_path, monkeypatch):
    """The lock belongs to the process: it is released when the process is killed."""
    monkeypatch.setattr(resolve, "_pretraining_inputs", lambda spec, recipe: pytest.fail("it runs"))
    lock = "from bert_keras.files import locked"
    program = f"{lock}\nwith locked({str(tmp_path)!r}, '--run-dir'):\n    print('has it'); input()"
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "has it\n"
    with pytest.raises(InputError, match="another bert-tfx runs in it; wait for it, or give another --run-dir"):
        local.run(RunRequest("tiny_cpu", str(tmp_path)))
    other.kill()
    other.wait()
    with locked(str(tmp_path), "--run-dir"):
        pass


def test_a_run_directory_that_tfx_reads_as_a_pattern_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"/a\[b\]: .* as a pattern and finds no file there; give another --run-dir"):
        local.run(RunRequest("tiny_cpu", str(tmp_path / "a[b]")))
    assert not (tmp_path / "a[b]").exists()


@pytest.mark.parametrize(("file", "run_dir"), [("text", "text/run"), ("run/lock/x", "run")])
def test_an_unwritable_run_directory_is_one_line(tmp_path, file, run_dir):
    """A file in its place, a folder in its lock's place: like a read-only file system."""
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("")
    with pytest.raises(InputError, match=r"/run: not writable \((Not|Is) a directory\); give another --run-dir"):
        local.run(RunRequest("tiny_cpu", str(tmp_path / run_dir)))
    assert (tmp_path / file).exists()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "/a/summary.json"), "/a/summary.json: No space left on device"),
        (OSError(30, "Read-only file system", "/runs/a"), "/runs/a: Read-only file system"),
        (RuntimeError("Traceback\n  OSError: [Errno 28] No space left on device [while running 'x']\n"),
         "OSError: [Errno 28] No space left on device"),
    ],
)  # fmt: skip
def test_a_full_or_read_only_disk_is_one_line(monkeypatch, tmp_path, error, line):
    """Also as the cause of another error."""

    def fail(spec, recipe):
        try:
            raise error
        except Exception as cause:
            raise ValueError("a stage failed") from cause

    monkeypatch.setattr(resolve, "_pretraining_inputs", fail)
    code, out, err = bert_tfx("pretrain", "--run-dir", tmp_path)
    assert (code, out) == (1, "")
    assert err == f"bert-tfx: {line}; make it writable or free some space, then run the same command to resume\n"


def test_a_defect_while_an_error_of_the_disk_is_handled_stays_a_traceback(monkeypatch, tmp_path):
    def fail(spec, recipe):
        try:
            raise PermissionError(13, "Permission denied", "/cache")
        except OSError:
            return {}["a defect"]

    monkeypatch.setattr(resolve, "_pretraining_inputs", fail)
    with pytest.raises(KeyError, match="a defect"):
        bert_tfx("pretrain", "--run-dir", tmp_path)


@pytest.mark.parametrize(("given", "used"), [((), "runs/sst-2"), (("--run-dir", "TASKS/x"), "TASKS/x")])
def test_a_given_run_directory_of_a_fine_tuning_is_taken_as_it_is(monkeypatch, tmp_path, given, used):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "run", lambda request: {"blessed": True, "dir": used_dirs.append(request.run_dir)})
    used_dirs = []
    assert bert_tfx("finetune", "sst-2", "--init", "model", *given)[0] == 0
    assert used_dirs == [str(tmp_path / used)]


class BeamStage(BaseBeamExecutor):
    def Do(self, *_):
        with self._make_beam_pipeline() as pipeline:
            _ = pipeline | beam.Create([1])


def test_a_stage_of_beam_leaves_no_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    BeamStage(BeamStage.Context(beam_pipeline_args=list(run_steps.BEAM_PIPELINE_ARGS))).Do({}, {}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("begun", [False, True])
def test_bad_input_removes_a_new_directory_unless_a_training_has_begun(tmp_path, begun):
    with pytest.raises(InputError), temporary_run_dir(str(tmp_path / "run"), "--output") as path:
        if begun:
            os.mkdir(os.path.join(path, "training"))
        raise InputError("bad")
    assert os.path.exists(path) == begun
