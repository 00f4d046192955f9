"""What is said while a pipeline runs goes to its log, and everything is as before afterwards; no stage leaves files."""

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
from pipeline import orchestrated
from pipeline.run_dir import claimed
from pipeline.run_request import RunRequest
from pipeline.runners import local_runner


@pytest.mark.parametrize("fails", [False, True])
def test_messages_go_to_the_log_and_nodes_to_the_terminal(tmp_path, monkeypatch, capfd, fails):
    def run_node(run_dir, run_id, node):
        absl.logging.info("about to run %s", node)
        logging.getLogger("some.library").info("much is said")
        os.write(2, b"C++ says this\n")
        if fails:
            raise RuntimeError("a node failed")

    monkeypatch.setattr(local_runner, "find_run_inputs", lambda request: None)
    monkeypatch.setattr(orchestrated, "compile_run", lambda request, inputs, run_id: ["Trainer", "ModelPush"])
    monkeypatch.setattr(orchestrated, "run_node", run_node)
    monkeypatch.setattr(orchestrated, "finish", lambda run_dir, run_id: {"blessed": True})
    root = logging.getLogger()
    before = root.handlers[:], root.level, absl.logging.get_verbosity()
    with pytest.raises(RuntimeError, match="a node failed") if fails else contextlib.nullcontext():
        assert local_runner.run(RunRequest("tiny_cpu", str(tmp_path))) == {"blessed": True}
    assert (root.handlers[:], root.level, absl.logging.get_verbosity()) == before
    out, err = capfd.readouterr()
    assert (out.split(), err) == (["Trainer"] if fails else ["Trainer", "ModelPush"], "")
    log = (tmp_path / "pipeline.log").read_text()
    assert "about to run Trainer" in log
    assert "some.library: much is said" in log
    assert "C++ says this" in log
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_one_process_runs_in_a_directory(tmp_path, monkeypatch):
    """The lock is the process's: it is free again when that is killed."""
    monkeypatch.setattr(local_runner, "find_run_inputs", lambda request: pytest.fail("it runs"))
    program = f"from pipeline.run_dir import claimed\nwith claimed({str(tmp_path)!r}):\n    print('has it'); input()"
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "has it\n"
    with pytest.raises(InputError, match="another bert-tfx runs in it; wait for it, or give another --run-dir"):
        local_runner.run(RunRequest("tiny_cpu", str(tmp_path)))
    other.kill()
    other.wait()
    with claimed(str(tmp_path)):
        pass


class BeamStage(BaseBeamExecutor):
    def Do(self, *_):
        with self._make_beam_pipeline() as pipeline:
            _ = pipeline | beam.Create([1])


def test_a_stage_of_beam_leaves_no_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    BeamStage(BeamStage.Context(beam_pipeline_args=list(orchestrated.BEAM_PIPELINE_ARGS))).Do({}, {}, {})
    assert list(tmp_path.iterdir()) == []
