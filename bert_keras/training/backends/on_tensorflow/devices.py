"""The devices of a training on TensorFlow: its distribution strategies."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable

import keras
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.objectives.objective import Objective
from bert_keras.training.backends.devices import cluster, described
from bert_keras.training.backends.on_tensorflow.steps import TensorFlowSteps
from bert_keras.training.config import TrainingConfig


class TensorFlowDevices:
    """The devices of a distribution strategy; the compiled loop is the same under each.

    `multi_worker`: the same command on every machine, each with the environment variable TF_CONFIG. `tpu`: on a TPU VM,
    or with TPU_NAME set; NOT covered by tests, for lack of a TPU. InputError: workers or a TPU are missing.
    """

    def __init__(self, strategy: str):
        self.strategy = _STRATEGIES[strategy]()
        self.replicas = self.strategy.num_replicas_in_sync
        self.worker, self.workers = 0, 1
        if strategy == "multi_worker":
            self.worker, self.workers = cluster().worker, len(cluster().addresses)

    def describe(self) -> str:
        names = self.strategy.extended.worker_devices
        return described(Counter(tf.DeviceSpec.from_string(name).device_type for name in names))

    def scope(self) -> contextlib.AbstractContextManager:
        return self.strategy.scope()

    def of_first_worker(self, number: int) -> int:
        if self.workers == 1:
            return number
        strategy = self.strategy

        @tf.function
        def add(value):
            return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.identity, args=(value,)), axis=None)

        own = tf.constant(0 if self.worker else number, tf.float64)
        return round(float(add(own)) * self.workers / self.replicas)

    def train_steps(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, objective: Objective, config: TrainingConfig
    ) -> TensorFlowSteps:
        return TensorFlowSteps(model, optimizer, objective, config, self.strategy)


def _gpus() -> list:
    return tf.config.list_logical_devices("GPU")


def _processor() -> tf.distribute.Strategy:
    with contextlib.suppress(RuntimeError):  # they are in use already
        tf.config.set_visible_devices([], "GPU")
    return tf.distribute.OneDeviceStrategy("/cpu:0")


# The runtime keeps the shape of every sum over the devices, by its number in the strategy, as long as the process
# lives. A second strategy would count from the same number and meet the shapes of the first.
@functools.cache
def _mirrored() -> tf.distribute.Strategy:
    # Logical CPUs count as devices too, so the loop can be tested without GPUs.
    devices = _gpus() or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


@functools.cache
def _multi_worker() -> tf.distribute.Strategy:
    cluster()
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
    "one_device": lambda: tf.distribute.OneDeviceStrategy("/gpu:0" if _gpus() else "/cpu:0"),
    "processor": _processor,
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "tpu": _tpu,
}
