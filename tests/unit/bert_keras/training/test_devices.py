"""Training on two devices is the same mathematics as on one."""

import dataclasses
import math
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.training.backends.on_jax import devices as on_jax
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.config import TrainingConfig
from tests.support.models.small_training import QUIET, RUN, log, loop, losses


@pytest.mark.parametrize(
    "changes", [{}, pytest.param({"optimizer": "lamb"}, marks=pytest.mark.slow)], ids=["bert_adam", "lamb"]
)
def test_two_devices_give_the_loss_of_one(examples, tmp_path, changes, finished):
    """Examples have one to three predictions, so replicas have unequal weights: a mean of means would differ."""
    mirrored, one = loop(examples, tmp_path, QUIET, strategy="mirrored", **changes), finished(QUIET, **changes)
    assert mirrored.devices.replicas == 2
    assert mirrored.devices.describe() == "2 CPU, no GPU is visible (docs/gpus.md)"
    mirrored.run()
    assert losses(tmp_path) == pytest.approx(losses(one), abs=1e-4)
    ours, theirs = ([entry["gradient_norm"] for entry in log(folder)] for folder in (tmp_path, one))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_trainings_with_other_numbers_of_totals_share_a_process():
    """As the pre-training and the fine-tuning of a demo: the runtime keeps the shape of each sum over the devices."""

    def summed(count):
        strategy = open_devices(TrainingConfig(strategy="mirrored", train_batch_size=16)).strategy

        def totals():
            ones = [tf.ones([])] * count
            return tf.stack(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, ones))

        return strategy.reduce("MEAN", tf.function(lambda: strategy.run(totals))(), axis=None).numpy().tolist()

    assert [summed(count) for count in (2, 3, 1)] == [[2.0] * 2, [2.0] * 3, [2.0]]


@pytest.mark.parametrize(
    ("devices", "described"),
    [
        (["/job:localhost/replica:0/task:0/device:CPU:0"], "1 CPU, no GPU is visible (docs/gpus.md)"),
        (["/gpu:0"], "1 GPU"),
        (["/device:TPU:0", "/device:TPU:1"], "2 TPU"),
    ],
)
def test_devices_are_described(devices, described):
    opened = open_devices(RUN)
    opened.strategy = mock.Mock()
    opened.strategy.extended.worker_devices = devices
    assert opened.describe() == described


def summed_in_a_step(run):
    """Count the numbers that the replicas of this process sum in the traced step, without the step's results."""
    summed, all_reduce = [], tf.distribute.ReplicaContext.all_reduce

    def counted(self, operation, values, *options):
        summed.extend(value.shape.num_elements() for value in values)
        return all_reduce(self, operation, values, *options)

    with mock.patch.object(tf.distribute.ReplicaContext, "all_reduce", counted):
        batches = run.steps.feed(run.phases[0], 0)
        run.steps._compiled.get_concrete_function(batches, tf.constant(1), tf.constant(0.0))
    return sum(summed)


def test_gradients_are_summed_over_the_devices_once(examples, tmp_path):
    """And the two weights of predictions that losses divide by."""
    run = loop(examples, tmp_path, QUIET, strategy="mirrored")
    assert summed_in_a_step(run) / 2 == 2 + sum(math.prod(variable.shape) for variable in run.model.trainable_variables)


def test_a_step_reads_no_variable_from_outside_the_strategy(examples, tmp_path, monkeypatch):
    """A TPU could not; there is none here, but the function that it would compile is the same."""
    run = loop(examples, tmp_path)
    compiled = []

    def traced(function, args=()):
        compiled.append(tf.function(function))
        return strategy_run(compiled[-1], args=args)

    strategy_run = run.devices.strategy.run
    monkeypatch.setattr(run.devices.strategy, "run", traced)
    batches = run.steps.feed(run.phases[0], 0)
    run.steps._compiled.get_concrete_function(batches, tf.constant(1), tf.constant(0.0))
    read = {
        variable.ref()
        for function in compiled
        for concrete in function._list_all_concrete_functions()
        for variable in concrete.graph.variables
    }
    own = {variable.value.ref() for variable in (*run.model.variables, *run.steps._optimizer.variables)}
    assert {variable.value.ref() for variable in run.model.trainable_variables} <= read <= own


@pytest.mark.slow
def test_another_number_of_devices_resumes_at_the_same_example(examples, tmp_path, quiet_losses):
    """Six steps on two devices, six on one: the losses of twelve on one."""
    first = loop(examples, tmp_path, QUIET, strategy="mirrored")
    first.phases = [dataclasses.replace(first.phases[0], end_step=6)]
    first.run()
    loop(examples, tmp_path, QUIET).run()
    assert losses(tmp_path) == pytest.approx(quiet_losses, abs=1e-4)


def test_jax_does_not_train_on_a_processor_beside_a_gpu_by_mistake(monkeypatch):
    monkeypatch.setattr(on_jax, "glob", types.SimpleNamespace(glob=lambda pattern: [pattern]))
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    with pytest.raises(InputError, match=r"an NVIDIA GPU, but JAX has no plugin for it: pip install 'jax\[cuda12\]'"):
        on_jax.JaxDevices("one_device")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert on_jax.JaxDevices("one_device").describe() == "1 CPU, no GPU is visible (docs/gpus.md)"
    with pytest.raises(InputError, match=r"training\.strategy=tpu finds no TPU; run on a TPU VM with jax\[tpu\]"):
        on_jax.JaxDevices("tpu")


def test_the_encoder_computes_layers_again_if_the_settings_say_so(examples):
    """And drops out as the first time: the gradients are the same."""
    gradients = []
    for rematerialize in (True, False):
        run = loop(examples, "", rematerialize=rematerialize)
        assert run.model.backbone.rematerializes == rematerialize and run.model.backbone.pads_on_the_right
        batch = {k: tf.constant(v) for k, v in next(run.phases[0].train_batches(0, run.config.seed)).items()}
        gradients.append(run.steps._gradients(batch, run.objective.totals(batch), tf.constant(5, tf.int64))[1])
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
