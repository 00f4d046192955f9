"""`bert-tfx train`: existing examples -> an exported model, without TFX."""

import json

import pytest

from pipeline.runs.lineage import latest_run
from tests.support.pipeline.command_line import SMALL, bert_tfx, refusal, set_words

SETTINGS = set_words(
    {
        key: value
        for key, value in SMALL.items()
        if key.startswith(("model.", "training.")) and key != "model.vocab_size"
    }
)


@pytest.fixture(scope="module")
def examples(first_run):
    assert first_run.code == 0, first_run.err
    return latest_run(str(first_run.dir)).output("PretrainExampleGen", "examples").uri


def test_training_gives_the_pipeline_s_losses(first_run, examples, tmp_path, monkeypatch):
    """And what was trained is exported to the folder `model` (a servable one: test_pretraining.py)."""
    exported = []
    export = "bert_keras.pretraining.export_with_examples"
    monkeypatch.setattr(export, lambda model, objective, job, *_, **__: exported.append(job.output_dir))
    code, out, err = bert_tfx("train", "tiny_cpu", "--examples", examples, "--output", tmp_path, *SETTINGS)
    assert code == 0, err
    assert "without padding" in out and "MFU" in out
    logs = [tmp_path / "logs" / "log.jsonl", *first_run.dir.glob("training/*/log.jsonl")]
    # Other tests have also trained in that run's directory, with other settings.
    ours, *theirs = ([json.loads(line)["loss"] for line in log.read_text().splitlines()] for log in logs)
    assert theirs.count(ours) == 1
    assert exported == [str(tmp_path / "model")]


@pytest.mark.slow
def test_training_starts_from_a_pushed_model_and_resumes_from_the_same(first_run, examples, tmp_path):
    init = min((first_run.dir / "serving").iterdir())
    few = ("--set", "training.num_train_steps=2", "--set", "training.num_warmup_steps=1")
    words = ("train", "tiny_cpu", "--examples", examples, "--output", tmp_path, "--init", init, *SETTINGS, *few)
    code, out, err = bert_tfx(*words)
    assert code == 0, err
    assert f"initial model {init}: kept: encoder, pooler, masked-LM head, next-sentence head\n" in out
    first = json.loads((tmp_path / "logs" / "log.jsonl").read_text().splitlines()[0])
    # Other tests have also trained in that run's directory, one of them without finishing a step.
    logs = [log.read_text() for log in first_run.dir.glob("training/*/log.jsonl")]
    begun = json.loads(max(logs, key=len).splitlines()[0])
    assert first["mlm_loss"] < begun["mlm_loss"]
    code, out, err = bert_tfx(*words)
    assert code == 0 and "initial model" not in out, err
    assert len(list(tmp_path.glob("initial_model/*"))) == len(list((tmp_path / "training").iterdir())) == 1


def test_bad_input_is_one_line(examples, tmp_path):
    for words, message in {
        ("tiny_cpu", "--examples", tmp_path): "has no example_spec.json; give the output of `bert-tfx",
        ("tiny_cpu", "--examples", examples, "--examples", examples): "--examples: one folder is given twice",
        ("bert_mini", "--examples", examples): "--examples of 32 tokens for 2 phase(s): give those of each phase",
        ("bert_nano", "--examples", examples): "bert_nano: no such recipe",
        ("tiny_cpu", "--examples", examples, "--set", "training.strategy=tpu"): "strategy=tpu finds no TPU",
    }.items():
        assert message in refusal("train", *words, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()
