"""What is said while a pipeline runs goes to its log, and everything is as before afterwards."""

import contextlib
import logging
import os
import types

import absl.logging
import pytest

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
