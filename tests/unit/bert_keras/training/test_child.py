"""Trainings on JAX in a child process: the same weights, the same errors, the same answer to signals."""

import dataclasses
import io
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
from bert_keras.training.backends import child
from bert_keras.training.config import TrainingConfig
from tests.support.processes import FAST_TO_COMPILE, environment
from tests.unit.bert_keras.finetuning.test_training import CONFIG, RUN, SETTINGS, TOKENIZER, case
from tests.unit.bert_keras.test_pretraining import not_exported, pretrain_job

pytestmark = pytest.mark.programs


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", FAST_TO_COMPILE)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The working directory, a folder whose modules a child can run."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def on_jax(config, **changes):
    return dataclasses.replace(config, backend="jax", **changes)


def weights(root):
    (file,) = Path(root).glob("**/ckpt-4.npz")
    with np.load(file) as arrays:
        return dict(arrays)


def test_pre_training(examples, tmp_path, monkeypatch, capfd):
    """The weights that are exported are those of TensorFlow; only the child trains."""
    exported = []
    monkeypatch.setattr("bert_keras.saved_model.pretrained.export_saved_model", collecting(exported))
    for name in ("tensorflow", "jax"):
        job = pretrain_job(examples.dir, tmp_path / name)
        if name == "jax":
            job = dataclasses.replace(job, training=on_jax(job.training))
        pretrain(job)
        assert capfd.readouterr().out.count("training step 4/4") == 1
    ours, theirs = weights(tmp_path / "jax"), weights(tmp_path / "tensorflow")
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_allclose(values, theirs[name], atol=2e-5, err_msg=name)
    for first, second in zip(*exported, strict=True):
        np.testing.assert_allclose(first, second, atol=2e-5)


def collecting(exported):
    def export(model, tokenizer, directory, *_):
        exported.append(model.get_weights())
        Path(directory).mkdir(exist_ok=True)

    return export


def test_fine_tuning(tmp_path):
    """Batches of changing length; the initial weights and the rows come from this process."""
    task, rows = case("mnli", 16)
    run = dataclasses.replace(RUN, num_train_epochs=2, train_batch_size=8)
    init = init_checkpoint(dataclasses.replace(CONFIG, hidden_dropout_prob=0.1), TOKENIZER)
    models = [
        fine_tune(task, SETTINGS, config, init, rows, rows, str(tmp_path / name))
        for name, config in (("tensorflow", run), ("jax", on_jax(run)))
    ]
    for ours, theirs in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("error", [Diverged, InputError, Preempted, StageError])
def test_errors_are_those_of_the_child(programs, monkeypatch, error):
    """Of its program here, in this process, and of one that stands for it."""

    def train(job):
        raise error(job["told"])

    monkeypatch.setattr(child, "_stop_with_parent", lambda: None)
    monkeypatch.setattr("sys.argv", ["child", "error.json"])
    monkeypatch.setattr("sys.stdin", io.StringIO('{"told": "at step 1"}\n'))
    with pytest.raises(SystemExit, match="1"):
        child.run_child(train)
    program = "import shutil, sys\nshutil.copy('error.json', sys.argv[1])\nraise SystemExit(1)\n"
    (programs / "failing.py").write_text(program)
    with pytest.raises(error, match=r"^at step 1$") as raised:
        child.train_in_child("failing", {})
    assert type(raised.value) is error


def test_sigterm_reaches_the_child_and_its_checkpoint_resumes(examples, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_keras.saved_model.pretrained.export_saved_model", not_exported)
    many = dict.fromkeys(("num_train_steps", "save_checkpoints_steps", "eval_every_steps"), 100_000)
    job = pretrain_job(examples.dir, tmp_path)
    job = dataclasses.replace(job, training=on_jax(job.training, **many))

    def terminate():
        while not any(log.stat().st_size for log in tmp_path.glob("training/*/log.jsonl")):
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
    assert not child.needs_child(on_jax(TrainingConfig()))
    with pytest.raises(InputError, match=r"Keras computes with jax here: set training\.backend=jax, or install"):
        child.needs_child(TrainingConfig())


def test_a_signal_before_the_training_is_no_failure(programs):
    """The child dies of it: it has no handler yet."""
    (programs / "slow.py").write_text("import pathlib, time\npathlib.Path('up').touch()\ntime.sleep(60)\n")

    def terminate():
        while not (programs / "up").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    with pytest.raises(Preempted, match="SIGTERM came before the training had begun; run the same command"):
        child.train_in_child("slow", {})
    (programs / "slow.py").write_text("raise SystemExit(7)\n")
    with pytest.raises(StageError, match="the training on JAX failed"):
        child.train_in_child("slow", {})


def test_a_child_ends_with_its_parent(tmp_path):
    """The end of its input is its parent's; that it ends by itself: `test_pre_training`."""
    train = "lambda job: (print(flush=True), time.sleep(60))"
    program = f"import time; from bert_keras.training.backends.child import run_child; run_child({train})"
    started = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "error.json")],
        env=environment(KERAS_BACKEND="jax"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    started.stdin.write(b"{}\n")
    started.stdin.flush()
    started.stdout.readline()
    started.stdin.close()
    assert started.wait(30) == -signal.SIGTERM
