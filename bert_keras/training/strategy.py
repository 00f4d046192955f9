"""Distribution strategies: the devices of a training."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Callable

import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.training.config import SecondPhase, TrainingConfig

NO_SECOND_PHASE = SecondPhase()


def create_strategy(
    config: TrainingConfig, second: SecondPhase = NO_SECOND_PHASE, rows_together: int = 1
) -> tf.distribute.Strategy:
    """Create the distribution strategy of a run; the training loop is the same under each.

    `multi_worker`: the same command on every machine, each with the environment variable TF_CONFIG
    (https://www.tensorflow.org/guide/distributed_training), called before any other TensorFlow operation. `tpu`: on a
    TPU VM, or with TPU_NAME set; NOT covered by tests, for lack of a TPU. Each device, and each part of an accumulated
    batch, has a multiple of `rows_together` rows.

    Raises:
        InputError: a global batch does not divide over the devices, or workers or a TPU are missing.
    """
    strategy = _STRATEGIES[config.strategy]()
    replicas = strategy.num_replicas_in_sync
    parts = replicas * config.gradient_accumulation_steps * rows_together
    together = f" in groups of {rows_together} rows" if rows_together > 1 else ""
    sizes = {
        "training.train_batch_size": config.train_batch_size,
        "training.batch_ramp_from": config.batch_ramp_from,
        "second_phase.train_batch_size": second.train_batch_size if second.num_train_steps else 0,
    }
    for name, size in sizes.items():
        if size % parts:
            raise InputError(
                f"{name} is {size}, which does not divide over {replicas} devices and "
                f"training.gradient_accumulation_steps={config.gradient_accumulation_steps}{together}; give a multiple "
                f"of {parts}"
            )
    return strategy


def worker_number(strategy: tf.distribute.Strategy) -> int:
    """The number of this process among the workers; worker 0 logs, keeps checkpoints and exports."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver.cluster_spec().jobs:
        return 0
    # A chief, if there is one, comes before the workers.
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", ()))
    return 0 if resolver.task_type == "chief" else chiefs + resolver.task_id


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """The number of processes that train."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    return max(1, sum(map(len, strategy.cluster_resolver.cluster_spec().as_dict().values())))


def of_first_worker(number: int, strategy: tf.distribute.Strategy) -> int:
    """The number that the first worker has; all workers must call it at the same point."""
    workers = num_workers(strategy)
    if workers == 1:
        return number

    @tf.function
    def add(value):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.identity, args=(value,)), axis=None)

    own = tf.constant(0 if worker_number(strategy) else number, tf.float64)
    return round(float(add(own)) * workers / strategy.num_replicas_in_sync)


def describe_devices(strategy: tf.distribute.Strategy) -> str:
    """The devices of this process, for people: "1 CPU, no GPU is visible (docs/gpus.md)", "4 GPU"."""
    devices = Counter(tf.DeviceSpec.from_string(name).device_type for name in strategy.extended.worker_devices)
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(devices.items()))
    return text if devices.keys() - {"CPU"} else f"{text}, no GPU is visible (docs/gpus.md)"


def _gpus() -> list:
    return tf.config.list_logical_devices("GPU")


def _one_device() -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy("/gpu:0" if _gpus() else "/cpu:0")


# The runtime keeps the shape of every sum over the devices, by its number in the strategy, as long as the process
# lives. A second strategy would count from the same number and meet the shapes of the first.
@functools.cache
def _mirrored() -> tf.distribute.Strategy:
    # Logical CPUs count as devices too, so the loop can be tested without GPUs.
    devices = _gpus() or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


@functools.cache
def _multi_worker() -> tf.distribute.Strategy:
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}"))
    except ValueError as error:
        raise InputError(f"TF_CONFIG is not JSON: {error}") from error
    if not {"cluster", "task"} <= cluster.keys():
        raise InputError(
            "training.strategy=multi_worker needs the environment variable TF_CONFIG on every worker, with `cluster` "
            "and `task`; one machine with several GPUs trains with training.strategy=mirrored"
        )
    return tf.distribute.MultiWorkerMirroredStrategy()


def _tpu() -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"training.strategy=tpu finds no TPU ({str(error).splitlines()[0]}); run on a TPU VM, or set TPU_NAME"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


_STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "one_device": _one_device,
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "tpu": _tpu,
}
