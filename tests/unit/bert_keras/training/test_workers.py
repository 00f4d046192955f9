"""Several workers, as processes on this machine: the mathematics of one device, one log, one stop."""

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.objectives.mlm_nsp import weights
from bert_keras.training.backends.opening import open_devices
from tests.support.models.small_training import RUN, losses
from tests.support.models.two_workers import CLIP_NORM, TWENTY, make_loop
from tests.support.processes import FAST_TO_COMPILE, environment, free_ports


@pytest.fixture(scope="module", params=["tensorflow", "jax"])
def out(request, examples, tmp_path_factory):
    """Output of two workers; the second received SIGTERM when they had done more than twenty steps."""
    out = tmp_path_factory.mktemp("workers")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    workers = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        command = [sys.executable, "-m", "tests.support.models.two_workers", examples.dir, str(out)]
        file = (out / f"worker-{index}.txt").open("w")
        variables = {"TF_CONFIG": json.dumps(config), "KERAS_BACKEND": request.param, "JAX_PLATFORMS": "cpu"}
        if request.param == "jax":
            variables["XLA_FLAGS"] = FAST_TO_COMPILE
        workers.append(subprocess.Popen(command, env=environment(**variables), stdout=file, stderr=subprocess.STDOUT))
    try:
        end = time.monotonic() + 600
        log = out / "curve" / "log.jsonl"
        while not (log.exists() and log.read_text().count("\n") > 6):
            texts = [(out / f"worker-{index}.txt").read_text()[-3000:] for index in range(2)]
            assert all(worker.poll() is None for worker in workers) and time.monotonic() < end, "\n".join(texts)
            time.sleep(0.1)
        workers[1].send_signal(signal.SIGTERM)
        codes = [worker.wait(timeout=600) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert codes == [4, 4], [(out / f"worker-{index}.txt").read_text()[-3000:] for index in range(2)]
    return out


@pytest.fixture(scope="module")
def of_one_device(examples, tmp_path_factory):
    """The losses of twenty steps on one device."""
    directory = tmp_path_factory.mktemp("twenty")
    make_loop(Path(examples.dir), directory, TWENTY).run()
    return losses(directory)


def test_two_workers_give_the_curve_of_one_device(out, of_one_device):
    """Over 20 steps, to 1e-4; examples have one to three predictions, so parts have unequal weights.

    Two devices of one process: test_devices.py.
    """
    found = losses(out / "curve")
    assert list(of_one_device) == [*range(5, 21, 5)]
    assert {step: found[step] for step in of_one_device} == pytest.approx(of_one_device, abs=1e-4)


@pytest.fixture(scope="module")
def clipped_by_parts(examples, tmp_path_factory):
    """The sums of the gradients of the halves of a batch, each clipped."""
    loop = make_loop(Path(examples.dir), tmp_path_factory.mktemp("parts"), TWENTY)
    batch = next(loop.phases[0].train_batches(0, loop.config.seed))
    summed = [0.0] * len(loop.model.trainable_variables)
    for rows in (slice(0, 8), slice(8, 16)):
        part = {name: tf.constant(value[rows]) for name, value in batch.items()}
        totals = [tf.reduce_sum(value) for value in weights(part)]
        _, gradients = loop.steps._gradients(part, totals, tf.constant(0, tf.int64))
        clipped, norm = tf.clip_by_global_norm(gradients, CLIP_NORM)
        assert norm > CLIP_NORM
        summed = [x + y for x, y in zip(summed, clipped, strict=True)]
    return summed


def test_per_replica_clipping_sums_what_each_replica_clips(out, clipped_by_parts):
    """Each replica's gradient is of the mean over its own part, and at most `clip_norm` long before the sum."""
    taken_off = np.load(out / "clipped.npz")
    for change, theirs in zip(taken_off.values(), clipped_by_parts, strict=True):
        np.testing.assert_allclose(change, theirs, rtol=1e-3, atol=1e-7)


def test_one_worker_s_sigterm_stops_all_at_the_same_step(out):
    # gRPC may log after it that the other worker is gone.
    stopped = re.compile(r"^stopped by SIGTERM at step (\d+); run the same command to resume$", re.MULTILINE)
    [step], [other] = (stopped.findall((out / f"worker-{index}.txt").read_text()) for index in range(2))
    assert step == other
    assert [path.name for path in (out / "curve" / "checkpoints").iterdir()] == [f"ckpt-{step}.npz"]


def test_all_workers_have_the_number_of_steps_of_the_first(out):
    """Each measures with its own clock; what they wrote while measuring is gone."""
    [steps], [other] = (re.findall(r"^fixed (\d+)$", (out / f"worker-{i}.txt").read_text(), re.M) for i in range(2))
    written = json.loads((out / "budget" / "budget.json").read_text())
    assert int(steps) == int(other) == written["num_train_steps"] >= 20
    assert [path.name for path in (out / "budget").iterdir()] == ["budget.json"]


def test_only_the_first_worker_keeps_checkpoints_and_logs(out):
    # `losses` refuses a step that is logged twice.
    assert {path.name for path in (out / "curve").iterdir()} == {"checkpoints", "log.jsonl", "tensorboard"}
    assert len(losses(out / "curve")) > 4
    assert "training step" not in (out / "worker-1.txt").read_text()


def test_workers_without_tf_config_are_refused(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(InputError, match=r"needs the environment variable TF_CONFIG .* training\.strategy=mirrored"):
        open_devices(dataclasses.replace(RUN, strategy="multi_worker"))
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(InputError, match="TF_CONFIG is not JSON"):
        open_devices(dataclasses.replace(RUN, strategy="multi_worker"))


def test_a_missing_tpu_is_named(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(
        InputError, match=r"training\.strategy=tpu finds no TPU \(.+\); run on a TPU VM, or set TPU_NAME"
    ):
        open_devices(dataclasses.replace(RUN, strategy="tpu"))
