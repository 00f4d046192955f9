"""What is said while a pipeline runs goes to its log, and everything is as before afterwards; no stage leaves files."""

import contextlib
import logging
import os
import tempfile
import types

import absl.logging
import apache_beam as beam
import pytest
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

from pipeline.runners import local_runner


@pytest.mark.parametrize("fails", [False, True])
def test_messages_go_to_the_log_and_stages_to_the_terminal(tmp_path, monkeypatch, capfd, fails):
    def run(pipeline):
        absl.logging.info("Component Trainer is running.")
        logging.getLogger("some.library").info("much is said")
        os.write(2, b"C++ says this\n")
        if fails:
            raise RuntimeError("a stage failed")

    monkeypatch.setattr(local_runner, "LocalDagRunner", lambda: types.SimpleNamespace(run=run))
    root = logging.getLogger()
    before = root.handlers[:], root.level, absl.logging.get_verbosity()
    with pytest.raises(RuntimeError, match="a stage failed") if fails else contextlib.nullcontext():
        local_runner.run(None, str(tmp_path))
    assert (root.handlers[:], root.level, absl.logging.get_verbosity()) == before
    out, err = capfd.readouterr()
    assert (out.strip(), err) == ("Trainer", "")
    log = (tmp_path / "pipeline.log").read_text()
    assert "some.library: much is said" in log
    assert "C++ says this" in log
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


class BeamStage(BaseBeamExecutor):
    def Do(self, *_):
        with self._make_beam_pipeline() as pipeline:
            _ = pipeline | beam.Create([1])


def test_a_stage_of_beam_leaves_no_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    BeamStage(BeamStage.Context(beam_pipeline_args=list(local_runner.BEAM_PIPELINE_ARGS))).Do({}, {}, {})
    assert list(tmp_path.iterdir()) == []
