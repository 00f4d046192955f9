"""The devices of a training on JAX: a mesh of one axis, over one process or several."""

import contextlib
import functools
import glob
import os
from collections import Counter

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils

from bert_keras.errors import InputError
from bert_keras.objectives.objective import Objective
from bert_keras.training.backends.devices import cluster, described
from bert_keras.training.backends.on_jax.steps import JaxSteps
from bert_keras.training.config import TrainingConfig

_HALF = 31


class JaxDevices:
    """`bert_keras.training.backends.devices.Devices` of JAX.

    `multi_worker`: the same command on every machine, each with the environment variable TF_CONFIG, whose first worker
    coordinates the others at its address. InputError: workers or devices are missing; a machine with a GPU that JAX
    cannot use, unless JAX_PLATFORMS says `cpu`.
    """

    def __init__(self, strategy: str):
        if jax.__version_info__ < (0, 5):
            # On CPUs it returns some gradients in bfloat16 transposed.
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_disable_hlo_passes=simplify-fp-conversions"
        self.worker, self.workers = 0, 1
        if strategy == "multi_worker":
            addresses, self.worker = cluster()
            self.workers = len(addresses)
            _join(addresses[0], self.workers, self.worker)
        try:
            devices = jax.devices()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"JAX finds no device ({reason}); unset JAX_PLATFORMS, or install its plugin: docs/gpus.md"
            ) from error
        platform = devices[0].platform
        if platform == "cpu" and glob.glob("/dev/nvidia[0-9]*") and "cpu" not in os.environ.get("JAX_PLATFORMS", ""):
            raise InputError(
                "this machine has an NVIDIA GPU, but JAX has no plugin for it: pip install 'jax[cuda12]', or set "
                "JAX_PLATFORMS=cpu to train on the processor (docs/gpus.md)"
            )
        if strategy == "tpu" and platform != "tpu":
            raise InputError("training.strategy=tpu finds no TPU; run on a TPU VM with jax[tpu]")
        if platform != "cpu" and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            # A program is compiled once a machine; so a resumed training has the kernels that it began with.
            jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/bert-tfx/jax"))
        chosen = devices[:1] if strategy == "one_device" else devices
        self.mesh = jax.sharding.Mesh(np.array(chosen), ("replica",))
        self.replicas, self._local = len(chosen), [d for d in chosen if d.process_index == jax.process_index()]

    def describe(self) -> str:
        return described(Counter(device.device_kind if device.platform != "cpu" else "CPU" for device in self._local))

    def scope(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def of_first_worker(self, number: int) -> int:
        if self.workers == 1:
            return number
        halves = np.array(divmod(number, 1 << _HALF), np.int32)  # JAX has no int64 by default
        high, low = np.asarray(multihost_utils.broadcast_one_to_all(halves)).tolist()
        return (high << _HALF) + low

    def train_steps(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, objective: Objective, config: TrainingConfig
    ) -> JaxSteps:
        return JaxSteps(model, optimizer, objective, config, self.mesh)


@functools.cache  # a process joins once, whatever it trains
def _join(coordinator: str, workers: int, worker: int) -> None:
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, workers, worker)
