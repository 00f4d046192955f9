"""Trainings on JAX in a child process: the same weights, the same errors, the same answer to signals."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bert_keras.errors import Diverged, InputError, Preempted, StageError
from bert_keras.finetuning.init_checkpoint import init_checkpoint
from bert_keras.finetuning.training import fine_tune
from bert_keras.pretraining import pretrain
from bert_keras.training.backends.child import needs_child, train_in_child
from bert_keras.training.config import TrainingConfig
from tests.support.processes import environment
from tests.unit.bert_keras.finetuning.test_training import CONFIG, RUN, SETTINGS, TOKENIZER, case
from tests.unit.bert_keras.test_pretraining import not_exported, pretrain_job

pytestmark = pytest.mark.programs


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def on_jax(config, **changes):
    return dataclasses.replace(config, backend="jax", **changes)


def weights(root):
    (file,) = Path(root).glob("**/ckpt-4.npz")
    with np.load(file) as arrays:
        return dict(arrays)


def test_pre_training(examples, tmp_path, monkeypatch, capfd):
    """The weights that are exported are those of TensorFlow; the same job again trains nothing."""
    exported = []
    monkeypatch.setattr("bert_keras.saved_model.pretrained.export_saved_model", collecting(exported))
    for name in ("tensorflow", "jax", "jax"):
        job = pretrain_job(examples.dir, tmp_path / name)
        if name == "jax":
            job = dataclasses.replace(job, training=on_jax(job.training))
        pretrain(job)
        told = capfd.readouterr().out
    assert "training step" not in told
    ours, theirs = weights(tmp_path / "jax"), weights(tmp_path / "tensorflow")
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_allclose(values, theirs[name], atol=2e-5, err_msg=name)
    for first, second in zip(exported[0], exported[1], strict=True):
        np.testing.assert_allclose(first, second, atol=2e-5)


def collecting(exported):
    def export(model, tokenizer, directory, *_):
        exported.append(model.get_weights())
        Path(directory).mkdir(exist_ok=True)

    return export


def test_fine_tuning(tmp_path):
    """Batches of changing length; the initial weights and the rows come from this process."""
    task, rows = case("mnli")
    run = dataclasses.replace(RUN, num_train_epochs=2, train_batch_size=8)
    init = init_checkpoint(dataclasses.replace(CONFIG, hidden_dropout_prob=0.1), TOKENIZER)
    models = [
        fine_tune(task, SETTINGS, config, init, rows, rows, str(tmp_path / name))
        for name, config in (("tensorflow", run), ("jax", on_jax(run)))
    ]
    for ours, theirs in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_errors_are_those_of_the_child(examples, tmp_path):
    job = pretrain_job(examples.dir, tmp_path)
    with pytest.raises(Diverged, match=r"at step 1 \(learning rate .*lower training"):
        pretrain(dataclasses.replace(job, training=on_jax(job.training, learning_rate=1e30, num_warmup_steps=0)))
    with pytest.raises(InputError, match=r"a vocabulary of 24 tokens, the model has model\.vocab_size=25"):
        model = dataclasses.replace(job.model, vocab_size=25)
        pretrain(dataclasses.replace(job, model=model, training=on_jax(job.training)))


def test_sigterm_reaches_the_child_and_its_checkpoint_resumes(examples, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_keras.saved_model.pretrained.export_saved_model", not_exported)
    many = dict.fromkeys(("num_train_steps", "save_checkpoints_steps", "eval_every_steps"), 100_000)
    job = pretrain_job(examples.dir, tmp_path)
    job = dataclasses.replace(job, training=on_jax(job.training, **many))

    def terminate():
        while (
            not list(tmp_path.glob("training/*/log.jsonl"))
            or not next(tmp_path.glob("training/*/log.jsonl")).stat().st_size
        ):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted, match=r"stopped by SIGTERM at step \d+; run the same command to resume"):
        pretrain(job)
    assert signal.getsignal(signal.SIGTERM) is before
    (checkpoint,) = tmp_path.glob("training/*/checkpoints/*")
    assert int(checkpoint.stem.partition("-")[2]) < 100_000


def test_a_process_of_jax_trains_nothing_of_tensorflow(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    assert not needs_child(on_jax(TrainingConfig()))
    with pytest.raises(InputError, match=r"Keras computes with jax here: set training\.backend=jax, or install"):
        needs_child(TrainingConfig())


def test_a_signal_before_the_training_is_no_failure(tmp_path, monkeypatch):
    """The child dies of it: it has no handler yet."""
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('up').touch()\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def terminate():
        while not (tmp_path / "up").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    with pytest.raises(Preempted, match="SIGTERM came before the training had begun; run the same command"):
        train_in_child("slow", {})
    (tmp_path / "slow.py").write_text("raise SystemExit(7)\n")
    with pytest.raises(StageError, match="the training on JAX failed"):
        train_in_child("slow", {})


@pytest.mark.parametrize(("seconds", "code"), [(60, -signal.SIGTERM), (0, 0)], ids=["trains", "has trained"])
def test_a_child_ends_with_its_parent_and_by_itself(tmp_path, seconds, code):
    """The end of its input is its parent's; a child that has trained leaves it unread."""
    train = f"lambda job: time.sleep({seconds})"
    imports = "import time; from bert_keras.training.backends.child import run_child"
    program = f"{imports}; print(flush=True); run_child({train})"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "error.json")],
        env=environment(KERAS_BACKEND="jax"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    child.stdin.write(b"{}\n")
    child.stdin.flush()
    if seconds:
        time.sleep(1)
        child.stdin.close()
    assert child.wait(30) == code
