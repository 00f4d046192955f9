"""A training on JAX, in processes of their own, is the training on TensorFlow, here."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.support.models.small_training import log, loop, losses, resume_from
from tests.support.processes import environment

MANY = {
    "num_train_steps": 200,
    "learning_rate": 5e-4,
    "num_warmup_steps": 20,
    "save_checkpoints_steps": 200,
    "eval_every_steps": 100,
}
# Changes of the run of twelve steps on two devices.
ON_TWO = {
    "with dropout": {},
    "in parts": {"gradient_accumulation_steps": 2},
    "clipped by replica": {"clip": "per_replica", "clip_norm": 0.25},
}


def train_on_jax(examples, *trainings, devices=1, code=0):
    """Run trainings (directory, changes) in one process."""
    words = [word for directory, changes in trainings for word in (str(directory), json.dumps(changes))]
    command = [sys.executable, "-m", "tests.support.models.trainings_on_jax", examples.dir, *words]
    variables = environment(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", DEVICES=str(devices))
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout


def arrays(directory, step):
    with np.load(directory / "checkpoints" / f"ckpt-{step}.npz") as file:
        return dict(file)


def largest_difference(ours, theirs):
    assert ours.keys() == theirs.keys() and len(ours) > 10
    return max(np.abs(ours[name].astype(float) - theirs[name]).max() for name in ours)


@pytest.fixture(scope="module")
def on_one(examples, tmp_path_factory):
    """Runs on JAX: 200 steps with dropout, 12 of them, 12 on each optimizer, and 12 with a teacher."""
    out = tmp_path_factory.mktemp("jax")
    runs = {
        "many": MANY,
        "twelve": {},
        "muon": {"optimizer": "muon"},
        "lamb": {"optimizer": "lamb"},
        "taught": {"taught": True},
    }
    told = train_on_jax(examples, *((out / name, changes) for name, changes in runs.items()))
    assert "training on 1 CPU, no GPU is visible (docs/gpus.md)" in told
    return out


@pytest.fixture(scope="module")
def on_two(examples, tmp_path_factory):
    """The runs of `ON_TWO` on JAX."""
    out = tmp_path_factory.mktemp("two")
    changes = [(out / name, {**change, "strategy": "mirrored"}) for name, change in ON_TWO.items()]
    train_on_jax(examples, *changes, devices=2)
    return out


def test_losses_are_equal_over_200_steps_with_dropout(examples, on_one, tmp_path):
    """Training losses to 1e-5, held-out ones too, and the gradients' norms to 1e-4 of them."""
    loop(examples, tmp_path, **MANY).run()
    for kind in ("train", "eval"):
        ours, theirs = log(on_one / "many", kind), log(tmp_path, kind)
        assert [line["step"] for line in ours] == [line["step"] for line in theirs]
        assert [line["loss"] for line in ours] == pytest.approx([line["loss"] for line in theirs], abs=1e-5)
    norms = [[line["gradient_norm"] for line in log(path)] for path in (on_one / "many", tmp_path)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


@pytest.mark.parametrize("optimizer", ["muon", "lamb"])
def test_optimizers_are_equal(examples, on_one, tmp_path, optimizer):
    loop(examples, tmp_path, optimizer=optimizer).run()
    assert largest_difference(arrays(on_one / optimizer, 12), arrays(tmp_path, 12)) < 2e-5


def test_a_taught_training_is_equal_and_resumes_exactly(examples, on_one, tmp_path):
    """Its checkpoints are those of a student alone: the teacher is not in them."""
    loop(examples, tmp_path / "whole", taught=True).run()
    assert losses(on_one / "taught") == pytest.approx(losses(tmp_path / "whole"), abs=1e-5)
    ours, theirs = arrays(tmp_path / "whole", 12), arrays(on_one / "taught", 12)
    assert largest_difference(ours, theirs) < 2e-5
    alone = arrays(on_one / "twelve", 12)
    assert {name: array.shape for name, array in ours.items()} == {name: array.shape for name, array in alone.items()}
    assert largest_difference(ours, alone) > 1e-3
    lines = [line for kind in ("train", "eval") for line in log(tmp_path / "whole", kind)]
    assert all(line["teacher_loss"] > 0 and line["relations_loss"] > 0 for line in lines)
    resume_from(tmp_path / "whole", 6, tmp_path / "resumed")
    loop(examples, tmp_path / "resumed", taught=True).run()
    assert largest_difference(arrays(tmp_path / "resumed", 12), ours) == 0


@pytest.mark.parametrize("name", ON_TWO)
def test_two_devices_are_equal(examples, on_two, tmp_path, name):
    """Each device drops out differently, and has parts of other weights."""
    loop(examples, tmp_path, strategy="mirrored", **ON_TWO[name]).run()
    assert losses(on_two / name) == pytest.approx(losses(tmp_path), abs=1e-5)
    assert largest_difference(arrays(on_two / name, 12), arrays(tmp_path, 12)) < 2e-5


@pytest.mark.slow
def test_eight_devices_give_the_loss_of_one(examples, tmp_path, quiet_losses):
    changes = {"model_dropout": False, "strategy": "mirrored"}
    train_on_jax(examples, (tmp_path, changes), devices=8)
    assert losses(tmp_path) == pytest.approx(quiet_losses(), abs=1e-5)


def test_a_training_goes_on_on_the_other_backend(examples, on_one, tmp_path):
    """From step 6 of one to step 12 of the other: as if it had not changed."""
    whole = tmp_path / "tensorflow"
    loop(examples, whole).run()
    resume_from(whole, 6, tmp_path / "to jax")
    resume_from(on_one / "twelve", 6, tmp_path / "to tensorflow")
    train_on_jax(examples, (tmp_path / "to jax", {}))
    loop(examples, tmp_path / "to tensorflow").run()
    for name in ("to jax", "to tensorflow"):
        ours = losses(tmp_path / name)
        assert ours.keys() == {9, 12}
        assert ours == pytest.approx({step: losses(whole)[step] for step in ours}, abs=1e-5)
        assert largest_difference(arrays(tmp_path / name, 12), arrays(whole, 12)) < 2e-5


@pytest.mark.parametrize(("name", "changes"), [("twelve", {}), ("taught", {"taught": True})])
def test_a_killed_training_resumes_exactly(examples, on_one, tmp_path, name, changes):
    """Killed after step 9; the checkpoint is that of step 6. Losses and weights are equal to the bit."""
    train_on_jax(examples, (tmp_path, {**changes, "killed_at": 9}), code=-signal.SIGKILL)
    assert list(losses(tmp_path)) == [3, 6, 9]
    told = train_on_jax(examples, (tmp_path, changes))
    assert "resuming training at step 6 of 12" in told
    assert losses(tmp_path) == losses(on_one / name)
    assert largest_difference(arrays(tmp_path, 12), arrays(on_one / name, 12)) == 0


def test_another_number_of_devices_goes_on(examples, tmp_path, quiet_losses):
    """Six steps on two devices, six on one: the losses of twelve on one."""
    quiet = {"model_dropout": False}
    train_on_jax(examples, (tmp_path / "two", {**quiet, "strategy": "mirrored"}), devices=2)
    resume_from(tmp_path / "two", 6, tmp_path / "one")
    train_on_jax(examples, (tmp_path / "one", quiet))
    expected = quiet_losses()
    assert losses(tmp_path / "one") == pytest.approx({step: expected[step] for step in (9, 12)}, abs=1e-5)


def test_a_loss_that_is_not_finite_stops_at_its_step(examples, tmp_path):
    """As on TensorFlow (test_loop.py): the batch is kept, the step is not counted."""
    words = [str(tmp_path), json.dumps({"learning_rate": 1e30, "num_warmup_steps": 0})]
    command = [sys.executable, "-m", "tests.support.models.trainings_on_jax", examples.dir, *words]
    variables = environment(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 1
    assert "is not finite at step 1 (" in done.stderr or "the loss is nan at step 1 (" in done.stderr
    run = loop(examples, tmp_path)
    second = next(run.phases[0].train_batches(1, run.config.seed))
    np.testing.assert_array_equal(np.load(tmp_path / "not_finite_at_step_1.npz")["input_ids"], second["input_ids"])
