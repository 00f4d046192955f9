"""`bert-tfx compile kubeflow`, and its options of `compile nodes` and `finish`."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from bert_keras.errors import InputError
from pipeline.cli import app
from tests.support.pipeline.compiled_for_kubeflow import GRAPH, METADATA, compiled, containers, without_source_lines

COMPILE = ["compile", "kubeflow", "--image", "bert-tfx:0.1.0"]


@without_source_lines()
def run(*words):
    """The output of a command; re-raises its exception."""
    result = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=True)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_the_nodes_are_those_of_the_recipe(tmp_path):
    path = tmp_path / "made/pipeline.yaml"
    out = run(*COMPILE, "--output", path)
    assert out == f"{path}: pipeline bert-pretrain, 12 nodes; run directory /runs/bert-pretrain\n"
    spec, _ = yaml.safe_load_all(path.read_text())
    words = containers(spec)["compile"]["args"]
    assert words[words.index("--expect") + 1].split(",") == [*_nodes(spec)]
    # On the volume, where no server is needed; one step after another.
    assert words[words.index("--metadata") + 1] == "sqlite:/runs/bert-pretrain/metadata.sqlite"
    assert all(len(before) <= 1 for name, before in _after(spec).items() if name != "condition-1")
    run(*COMPILE, "--metadata", METADATA, "--output", path)
    spec, _ = yaml.safe_load_all(path.read_text())
    assert spec["root"]["inputDefinitions"]["parameters"]["corpus"]["defaultValue"] == []
    # The other tests assume this graph.
    compiled(tmp_path / "taken.yaml")
    taken, _ = yaml.safe_load_all((tmp_path / "taken.yaml").read_text())
    assert _after(spec) == _after(taken)
    assert set(_nodes(spec)) == set(GRAPH)


def _nodes(spec):
    found = [container["args"] for container in containers(spec).values() if container["args"][0] == "run-node"]
    order = {name: number for number, name in enumerate(_expected(spec))}
    return sorted((args[1] for args in found), key=order.get)


def _expected(spec):
    words = containers(spec)["compile"]["args"]
    return words[words.index("--expect") + 1].split(",")


def _after(spec):
    return {name: sorted(task.get("dependentTasks", [])) for name, task in spec["root"]["dag"]["tasks"].items()}


def test_a_task_on_vertex(tmp_path):
    path = tmp_path / "p.yaml"
    words = ["sst-2", "--init", "gs://models/bert", "--set", "search.enabled=true", "--name", "sst-2"]
    run(*COMPILE, *words, "--output", path, "--bucket", "b", "--metadata", "grpc://10.0.0.2:8080")
    (spec,) = yaml.safe_load_all(path.read_text())
    assert _after(spec)["trainer"] == ["task-example-gen"]
    assert containers(spec)["trainer"]["resources"]["resourceCpuLimit"] == "8"
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert parameters["settings"]["defaultValue"] == ["search.enabled=true"]
    assert spec["pipelineInfo"]["name"] == "sst-2"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "p.json"], "--output p.json: must end in .yaml, for Kubeflow's client"),
        (["--output", "p.yaml", "--bucket", "b"], "give a --metadata that it can reach"),
        (["--output", "p.yaml", "--bucket", "b", "--metadata", "sqlite:/m"], "give a --metadata that it can reach"),
        (["--output", "p.yaml", "--metadata", "sqlite:"], "must be sqlite:FILE"),
        (["--output", "p.yaml", "--metadata", "sqlite:m"], "--metadata sqlite:m: give an absolute path on the volume"),
        (["--output", "p.yaml", "--set", "gate.x=1"], "gate.x is not a setting"),
        (["--output", "p.yaml", "--metadata", "mysql://me:planted@h/d"], "holds a password"),
        (["--output", "p.yaml", "--resources", "none.yaml"], "none.yaml: cannot be read as YAML"),
        (["tiny_gpu", "--output", "p.yaml"], "tiny_gpu"),
    ],
)
def test_bad_options_are_one_line_and_write_nothing(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        run(*COMPILE, *words)
    assert message in str(error.value) and "planted" not in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--set-json", "--corpus-json"])
@pytest.mark.parametrize("text", ["a=b", '{"a": "b"}', "[1]", ""])
def test_an_invalid_list_is_one_line(tmp_path, option, text):
    with pytest.raises(InputError, match=f"{option} .*: must be a list of texts"):
        run("compile", "nodes", "--run-dir", tmp_path / "run", "--run-id", "r", option, text)
    assert not (tmp_path / "run").exists()


def test_a_setting_is_in_set_json_or_a_parameter(tmp_path, monkeypatch):
    """Kubeflow gives each parameter, its default too: one of the two would be lost without a word."""
    from pipeline.runners import run_steps
    from pipeline.runs import resolve

    asked = []
    monkeypatch.setattr(resolve, "resolve", lambda request, run_id: request)
    monkeypatch.setattr(run_steps, "compile_run", lambda request, run_id: asked.append(request) or ["A"])
    lists = ["--set-json", json.dumps(["training.seed=1", "examples.seed=2"]), "--corpus-json", '["x y"]']
    words = ["compile", "nodes", "--run-dir", tmp_path, "--run-id", "r", *lists, "--corpus", "z"]
    words += ["--metadata", "sqlite:m.sqlite"]
    run(*words, "--set", "data.seed=3")
    assert asked[0].settings == ("training.seed=1", "examples.seed=2", "data.seed=3")
    assert asked[0].corpus == ("x y", "z") and asked[0].metadata == f"sqlite:{os.getcwd()}/m.sqlite"
    with pytest.raises(InputError, match=r"--set-json and --set have training\.seed; give it once"):
        run(*words, "--set", "training.seed=3")


@pytest.mark.parametrize(
    ("blessed", "push", "said"),
    [(True, "COMPLETE", "pushed"), (True, "CACHED", "pushed before"), (False, "COMPLETE", "refused")],
)
def test_finish_writes_the_outcome_and_exits_with_0(tmp_path, monkeypatch, blessed, push, said):
    from pipeline.runners import run_steps

    summary = {"blessed": blessed, "served_version": None, "stage_states": {"ModelPush": push}}
    monkeypatch.setattr(run_steps, "finish", lambda *_: summary)
    words = ["finish", "--run-dir", tmp_path, "--run-id", "r"]
    run(*words, "--outcome", tmp_path / "outcome")
    assert (tmp_path / "outcome").read_text() == said
    assert CliRunner().invoke(app, [*map(str, words)]).exit_code == (0 if blessed else 3)
    assert os.listdir(tmp_path) == ["outcome"]


def test_the_commands_of_the_document_parse():
    page = (Path(__file__).parents[5] / "docs" / "orchestration.md").read_text()
    section = page[page.index("## Kubeflow") :].partition("\n## ")[0]
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)).splitlines()
    assert {line.split()[1] for line in lines} == {"compile"}
    for line in lines:
        words = shlex.split(line)[1:]
        command = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(line, words)  # raises on an unknown option or a missing argument
