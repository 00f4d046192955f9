"""`bert-tfx train`: its lock, and the initial model that an interrupted command finds again."""

import json

import pytest
import tensorflow as tf

from bert_keras import pretraining
from bert_keras.errors import InputError
from bert_keras.files import locked
from components.trainer import initial_model
from pipeline.commands.train import train
from tests.support.stores import gs_in_memory

COUNTS = {split: {"instances": 1} for split in ("train", "eval")}
SPEC = {"max_seq_length": 64, "max_predictions_per_seq": 10, "vocab_size": 8000, "counts": COUNTS}
MULTI_WORKER = ["training.strategy=multi_worker"]


@pytest.fixture
def examples(tmp_path):
    (tmp_path / "examples").mkdir()
    return tmp_path / "examples"


@pytest.fixture
def jobs(monkeypatch, examples):
    """The jobs that are trained."""
    jobs = []
    write_spec(examples, "one")
    monkeypatch.setattr(pretraining, "pretrain", jobs.append)
    return jobs


def write_spec(examples, vocabulary):
    (examples / "example_spec.json").write_text(json.dumps({**SPEC, "vocabulary_sha256": vocabulary}))


def test_a_folder_has_one_training_at_a_time(jobs, examples, tmp_path):
    output = str(tmp_path / "out")
    with locked(output, "--output"):
        with pytest.raises(
            InputError, match=r"out: another bert-tfx runs in it; wait for it, or give another --output"
        ):
            train("tiny_cpu", [str(examples)], output)
        assert not jobs
        # Workers share it.
        train("tiny_cpu", [str(examples)], output, MULTI_WORKER)
    train("tiny_cpu", [str(examples)], output)
    train("tiny_cpu", [str(examples)], "gs://lock/out")
    assert len(jobs) == 3
    with pytest.raises(InputError, match=r"a\[b\]: TensorFlow reads .* give another --output"):
        train("tiny_cpu", [str(examples)], str(tmp_path / "a[b]"))


def test_settings_of_other_stages_are_refused(jobs, examples, tmp_path):
    for setting in ("examples.masking.masked_lm_prob=0.9", "gate.max_mlm_perplexity=1", " corpus.reread=true"):
        with pytest.raises(InputError, match=f"--set {setting}: `train` has the examples as they are, and no gate"):
            train("tiny_cpu", [str(examples)], str(tmp_path / "out"), [setting])
    assert not jobs
    short = ["model.max_position_embeddings=64", "examples.max_seq_length=64"]
    train("tiny_cpu", [str(examples)], str(tmp_path / "out"), short)
    assert jobs[0].model.max_position_embeddings == 64


def test_an_initial_model_is_exported_once_to_any_file_system(jobs, examples, tmp_path, monkeypatch):
    """Again after an interruption, for another model of that name, and for examples of another vocabulary."""
    exported = []

    def export(job, source, cased, last=True):
        exported.append(job.output_dir)
        names = ("initial.weights.h5", "learned_rows.json")
        for name in names if complete else names[:1]:
            with tf.io.gfile.GFile(f"{job.output_dir}/{name}", "w") as file:
                file.write("")

    def run():
        train("continued", [str(examples)], "gs://initial/out", None, str(init))
        return jobs[-1].init

    gs_in_memory(monkeypatch)
    monkeypatch.setattr(initial_model, "export_initial_model", export)
    monkeypatch.setattr("pipeline.recipes.initial_model.with_initial_model", lambda recipe, *_: recipe)
    init, complete = tmp_path / "bert[a]" / "variables", False
    init.mkdir(parents=True)
    (init / "data").write_text("1")
    init = init.parent
    first, complete = run(), True
    assert run() == run() == first and exported == [first] * 2
    write_spec(examples, "two")
    assert run() not in {first} and len(exported) == 3
    write_spec(examples, "one")
    (init / "variables" / "data").write_text("2")
    assert run() not in exported[:3] and len(exported) == 4
