"""Beam's options of a command: `pip freeze` for a cluster."""

import pytest
from apache_beam.runners.portability import stager

from pipeline.examples.beam_jobs import beam_options


@pytest.mark.parametrize("has_pip", [True, False])
def test_beam_runs_pip_only_where_it_is_installed(tmp_path, monkeypatch, has_pip):
    asked = []
    monkeypatch.setattr(stager.subprocess, "check_output", lambda words: asked.append(words[1:]) or b"")
    with monkeypatch.context() as imports:
        imports.setattr("importlib.util.find_spec", lambda name: has_pip or None)
        options = beam_options([])
    stager.Stager.create_job_resources(options, str(tmp_path))
    assert asked == [["-m", "pip", "freeze"]] * has_pip
