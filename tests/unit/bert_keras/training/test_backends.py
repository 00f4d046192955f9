"""A training on JAX, in processes of their own, is the training on TensorFlow, here."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.support.models.small_training import log, loop, losses, resume_from
from tests.support.models.training_arrays import arrays, largest_difference
from tests.support.processes import environment

# Each optimizer is that of a run: the default one, that of many steps, and that of two devices.
MANY = {
    "optimizer": "lamb",
    "num_train_steps": 200,
    "learning_rate": 5e-4,
    "num_warmup_steps": 20,
    "save_checkpoints_steps": 50,
    "eval_every_steps": 100,
}
ON_TWO = {"optimizer": "muon", "gradient_accumulation_steps": 2, "strategy": "mirrored"}
QUIET = {"model_dropout": False}


def train_on_jax(examples, trainings, devices=1, code=0):
    """Run trainings, changes by directory, in one process; return what it tells. The last one may end it."""
    words = [word for directory, changes in trainings.items() for word in (str(directory), json.dumps(changes))]
    command = [sys.executable, "-m", "tests.support.models.trainings_on_jax", examples.dir, *words]
    variables = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "DEVICES": str(devices), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True)
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def on_jax(examples, tmp_path_factory):
    """Folders of runs on JAX. On two devices: in parts and with dropout; without it.

    On one, with dropout: 200 steps, 12, and 12 with a teacher; 9 and a kill.
    """
    out = tmp_path_factory.mktemp("jax")
    runs = {
        "parts": ON_TWO,
        "quiet": {**QUIET, "strategy": "mirrored"},
        "many": MANY,
        "twelve": {},
        "taught": {"taught": True},
        "killed": {"killed_at": 9},
    }
    told = train_on_jax(examples, {out / name: runs[name] for name in runs}, devices=2, code=-signal.SIGKILL)
    assert told.count("training on 2 CPU, no GPU is visible (docs/gpus.md)") == 2
    assert told.count("training on 1 CPU, no GPU is visible (docs/gpus.md)") == 4
    assert list(losses(out / "killed")) == [3, 6, 9]
    return out


@pytest.fixture(scope="module")
def many(examples, tmp_path_factory):
    """The folder of the run of 200 steps on TensorFlow."""
    out = tmp_path_factory.mktemp("many")
    loop(examples, out, **MANY).run()
    return out


@pytest.fixture(scope="module")
def resumed(examples, on_jax, many, tmp_path_factory):
    """The output of JAX for runs that begin in the middle of others, and their folders; the last one diverges."""
    out = tmp_path_factory.mktemp("resumed")
    resume_from(many, 150, out / "tensorflow")
    resume_from(on_jax / "quiet", 6, out / "two")
    runs = {
        on_jax / "killed": {},
        out / "tensorflow": MANY,
        out / "two": QUIET,
        out / "diverged": {"learning_rate": 1e30, "num_warmup_steps": 0},
    }
    return train_on_jax(examples, runs, code=1), out


def check_the_rest_is_equal(resumed, whole, first=6, last=12):
    """Of a run from the middle, but for rounding."""
    expected = losses(whole)
    assert losses(resumed) == pytest.approx({step: expected[step] for step in expected if step > first}, abs=1e-5)
    assert largest_difference(resumed, whole, last) < 2e-5


def test_losses_are_equal_over_200_steps_with_dropout(on_jax, many):
    """Training losses to 1e-5, held-out ones too, and the gradients' norms to 1e-4 of them."""
    for kind in ("train", "eval"):
        ours, theirs = log(on_jax / "many", kind), log(many, kind)
        assert [line["step"] for line in ours] == [line["step"] for line in theirs]
        assert [line["loss"] for line in ours] == pytest.approx([line["loss"] for line in theirs], abs=1e-5)
    norms = [[line["gradient_norm"] for line in log(path)] for path in (on_jax / "many", many)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_a_training_on_two_devices_goes_on_on_tensorflow(examples, on_jax, tmp_path):
    """Each device and each part drops out differently, and has other weights of predictions."""
    resume_from(on_jax / "parts", 6, tmp_path)
    loop(examples, tmp_path, **ON_TWO).run()
    check_the_rest_is_equal(tmp_path, on_jax / "parts")


@pytest.mark.slow
def test_eight_devices_give_the_loss_of_one(examples, tmp_path, quiet_losses):
    train_on_jax(examples, {tmp_path: {**QUIET, "strategy": "mirrored"}}, devices=8)
    assert losses(tmp_path) == pytest.approx(quiet_losses, abs=1e-5)


def test_another_number_of_devices_goes_on(on_jax, resumed):
    """Six steps on two devices, six on one: the losses of twelve on two."""
    check_the_rest_is_equal(resumed[1] / "two", on_jax / "quiet")


def test_a_training_goes_on_on_jax(resumed, many):
    """From step 150 of TensorFlow's; the other way: `test_a_taught_training_goes_on_on_tensorflow`."""
    check_the_rest_is_equal(resumed[1] / "tensorflow", many, 150, 200)


def test_a_taught_training_goes_on_on_tensorflow(examples, on_jax, tmp_path):
    """Its checkpoints are those of a student alone: the teacher is not in them."""
    taught, alone = on_jax / "taught", on_jax / "twelve"
    resume_from(taught, 6, tmp_path)
    loop(examples, tmp_path, taught=True).run()
    check_the_rest_is_equal(tmp_path, taught)
    shapes = [{name: array.shape for name, array in arrays(folder).items()} for folder in (tmp_path, alone)]
    assert shapes[0] == shapes[1]
    assert largest_difference(tmp_path, alone) > 1e-3
    lines = [line for kind in ("train", "eval") for line in log(tmp_path, kind)]
    assert all(line["teacher_loss"] > 0 and line["relations_loss"] > 0 for line in lines)


def test_a_killed_training_resumes_exactly(on_jax, resumed):
    """Killed after step 9; the checkpoint is that of step 6. Losses and weights are equal to the bit."""
    assert "resuming training at step 6 of 12" in resumed[0]
    assert losses(on_jax / "killed") == losses(on_jax / "twelve")
    assert largest_difference(on_jax / "killed", on_jax / "twelve") == 0


def test_a_loss_that_is_not_finite_stops_at_its_step(examples, resumed, tmp_path):
    """As on TensorFlow (test_loop.py): the batch is kept, the step is not counted."""
    told, folder = resumed
    assert "is not finite at step 1 (" in told or "the loss is nan at step 1 (" in told
    run = loop(examples, tmp_path)
    second = next(run.phases[0].train_batches(1, run.config.seed))
    kept = np.load(folder / "diverged" / "not_finite_at_step_1.npz")
    np.testing.assert_array_equal(kept["input_ids"], second["input_ids"])
