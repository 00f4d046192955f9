"""A compiled file, run as by a backend with a stand-in for `bert-tfx`."""

import itertools
import json
import os
import sys

import pytest

from tests.support.pipeline.compiled_for_kubeflow import GRAPH, STEPS, compiled
from tests.support.pipeline.kubeflow_steps import StepRunner

# Records its arguments and environment; fails as often as a file `fail-NODE` says; `finish` writes `outcome`.
STAND_IN = f"""#!{sys.executable} -S
import json, os, sys
here, words = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]
with open(here + "/calls", "a") as file:
    file.write(json.dumps([words, dict(os.environ)]) + "\\n")
print("said by", *words)
left = here + "/fail-" + words[1]
if os.path.exists(left):
    code, times = map(int, open(left).read().split())
    if times:
        open(left, "w").write(f"{{code}} {{times - 1}}")
        sys.exit(code)
if "--outcome" in words:
    with open(words[words.index("--outcome") + 1], "w") as file:
        file.write(open(here + "/outcome").read())
"""


class Image:
    """A folder with the stand-in, and its recorded calls."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        (folder / "bert-tfx").write_text(STAND_IN)
        (folder / "bert-tfx").chmod(0o755)
        (folder / "outcome").write_text("pushed")

    @property
    def environment(self):
        return {"PATH": f"{self.folder}{os.pathsep}{os.defpath}"}

    @property
    def calls(self):
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path / "image")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A compiled file with a password from a Secret."""
    folder = tmp_path_factory.mktemp("compiled")
    compiled(folder / "pipeline.yaml", mount_path=str(folder / "runs"), password_secret="metadata/password")
    return folder / "pipeline.yaml"


@pytest.fixture
def steps(file, image, tmp_path):
    secrets = {"BERT_TFX_METADATA_PASSWORD": "secret"}
    return StepRunner(file, "run-7", str(tmp_path / "steps"), image.environment, secrets)


def test_every_step_runs_once_in_order(steps, file, image, tmp_path):
    steps.run({})
    assert set(steps.outcomes) == {*STEPS, "pushed"} and set(steps.outcomes.values()) == {"done"}
    said = [words for words, _ in image.calls]
    assert said[0][:2] == ["compile", "nodes"] and said[-1][:2] == ["models", "list"] and said[-2][0] == "finish"
    nodes = [words[1] for words in said[1:-2]]
    assert sorted(nodes) == sorted(GRAPH)
    for node, upstream in GRAPH.items():
        assert all(nodes.index(before) < nodes.index(node) for before in upstream)
    run = ["--run-dir", f"{file.parent}/runs/bert-pretrain", "--run-id", "run-7"]
    assert all(words[-4:] == run for words in said[:-1])
    assert (tmp_path / "steps/trainer/log").read_text().startswith("said by run-node Trainer")


def test_parameters_are_filled_in_as_a_backend_writes_them(steps, image):
    given = {"num_train_steps": 7, "max_mlm_perplexity": 20.5, "corpus": ["a b.txt", 'c"d.txt']}
    steps.run({**given, "settings": ["model.hidden_size=32"]})
    words = image.calls[0][0]
    assert words[2] == "tiny_cpu"
    sets = [after for word, after in itertools.pairwise(words) if word == "--set"]
    assert sets == [
        "training.num_train_steps=7",
        "gate.max_mlm_perplexity=20.5",
        "gate.min_mlm_accuracy=0.2",
        "gate.min_nsp_accuracy=0.5",
    ]
    assert json.loads(words[words.index("--corpus-json") + 1]) == ["a b.txt", 'c"d.txt']
    assert json.loads(words[words.index("--set-json") + 1]) == ["model.hidden_size=32"]


def test_whole_numbers_have_no_point(steps, file, image):
    """The file has 1500.0, JSON's only type of number; a backend writes 1500."""
    assert "defaultValue: 1500.0" in file.read_text()
    steps.run({})
    assert "training.num_train_steps=1500" in image.calls[0][0]


def test_a_step_sees_only_the_file_s_environment(steps, image, monkeypatch):
    monkeypatch.setenv("PLANTED", "of this machine")
    steps.run({})
    for words, environment in image.calls:
        expected = {"PATH"} if words[0] == "models" else {"PATH", "BERT_TFX_METADATA_PASSWORD"}
        # Variables added by the stand-in's interpreter are ignored.
        assert set(environment) - {"LC_CTYPE"} == expected


def test_a_refused_model_skips_the_last_step(steps, image):
    (image.folder / "outcome").write_text("refused")
    steps.run({})
    assert steps.outcomes.pop("condition-1") == "skipped"
    assert set(steps.outcomes) == set(STEPS)
    assert image.calls[-1][0][0] == "finish"


def test_a_step_that_is_preempted_is_run_again(steps, image):
    (image.folder / "fail-Trainer").write_text("4 2")
    steps.run({})
    assert [words[1] for words, _ in image.calls].count("Trainer") == 3
    assert steps.outcomes["trainer"] == "done"


def test_a_step_that_keeps_failing_ends_the_run(steps, image):
    (image.folder / "fail-VocabGen").write_text("1 9")
    with pytest.raises(AssertionError, match=r"step vocab-gen failed with exit codes \[1, 1, 1\]; its log"):
        steps.run({})
    said = [words[1] for words, _ in image.calls]
    assert said.count("VocabGen") == 3 and "PretrainExampleGen" not in said
