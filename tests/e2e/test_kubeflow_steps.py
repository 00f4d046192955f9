"""The pipeline compiled for Kubeflow, each step a process as a backend would start it, compared with a local run.

Each of its fifteen processes imports TFX: minutes. `pytest -m slow tests/e2e/test_kubeflow_steps.py`
"""

import hashlib
import os
import sys
from pathlib import Path

import pytest

from tests.support.pipeline.command_line import SMALL, bert_tfx, set_words, summary_of
from tests.support.pipeline.example_shards import digests
from tests.support.pipeline.kubeflow_steps import StepRunner

PASSWORD, TOKEN = "planted-metadata-password", "planted-api-token"
# Parameters of the pipeline; other settings are compiled into it.
PARAMETERS = {
    "num_train_steps": "training.num_train_steps",
    "max_mlm_perplexity": "gate.max_mlm_perplexity",
    "min_mlm_accuracy": "gate.min_mlm_accuracy",
    "min_nsp_accuracy": "gate.min_nsp_accuracy",
}
SAME = (
    "corpus_documents",
    "corpus_bytes",
    "vocab_size",
    "examples_train",
    "examples_eval",
    "unigram_perplexity",
    "blessed",
)
SCORES = ("mlm_perplexity", "mlm_accuracy", "nsp_accuracy")


@pytest.fixture(scope="module")
def steps(corpus, tmp_path_factory):
    """Run directory after all steps ran as processes, with the file's secrets."""
    folder = tmp_path_factory.mktemp("kubeflow")
    environment = {"BERT_TFX_METADATA_PASSWORD": PASSWORD, "BERT_TFX_API_TOKEN": TOKEN}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        rest = {key: value for key, value in SMALL.items() if key not in PARAMETERS.values()}
        code, out, err = bert_tfx(
            *("compile", "kubeflow", "tiny_cpu", "--image", "bert-tfx:0.1.0", "--output", folder / "pipeline.yaml"),
            *("--mount-path", folder / "runs", "--metadata", f"sqlite:{folder}/runs/metadata.sqlite"),
            *("--password-secret", "metadata/password"),
            *set_words(rest),
        )
        assert code == 0, err
        assert "12 nodes" in out
        values = {name: SMALL[setting] for name, setting in PARAMETERS.items()} | {"corpus": [str(corpus)]}
        image = {
            "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.defpath)),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        runner = StepRunner(folder / "pipeline.yaml", "0b5f-run", str(folder / "steps"), image)
        runner.run(values)
    assert set(runner.outcomes.values()) == {"done"} and len(runner.outcomes) == 15
    return folder


def shards(run_dir):
    """Hashes of the only artifact of examples."""
    (examples,) = (run_dir / "artifacts/PretrainExampleGen/examples").iterdir()
    return digests(examples)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_steps_push_a_model(steps):
    run_dir = steps / "runs/bert-pretrain"
    summary = summary_of(run_dir)
    (version,) = (run_dir / "serving").iterdir()
    assert summary["pushed_version"] == version.name
    assert (version / "saved_model.pb").exists()
    assert (run_dir / "report.html").exists()
    assert (steps / "steps/finish/outcome").read_text() == "pushed"
    assert version.name in (steps / "steps/pushed/log").read_text()


def weights(run_dir):
    """Hash of the variables of the only pushed model."""
    (path,) = (run_dir / "serving").glob("*/variables/variables.data-00000-of-00001")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_examples_weights_and_scores_are_those_of_a_local_run(steps, first_run):
    run_dir = steps / "runs/bert-pretrain"
    assert {name.partition("/")[0] for name in shards(run_dir)} == {"Split-train", "Split-eval"}
    assert shards(run_dir) == shards(first_run.dir)
    assert weights(run_dir) == weights(first_run.dir)
    ours, theirs = (summary_of(d) for d in (run_dir, first_run.dir))
    assert {name: ours[name] for name in SAME} == {name: theirs[name] for name in SAME}
    # The Evaluator's batch sizes depend on time, and so does the rounding in float32.
    for name in SCORES:
        assert ours[name] == pytest.approx(theirs[name], rel=1e-6), name


@pytest.mark.slow
def test_no_credentials_are_left_anywhere(steps):
    """Compiled pipelines, intermediate representation, ML Metadata, logs, report, models."""
    files = [path for path in steps.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"pipeline.yaml", "metadata.sqlite", "report.html", "0b5f-run.json", "0b5f-run.pbtxt", "log"} <= names
    for path in files:
        content = path.read_bytes()
        assert PASSWORD.encode() not in content and TOKEN.encode() not in content, path
