"""The devices of a training, and the compiled steps on them: one interface, a package for each backend of Keras.

The loop, the examples, masks, schedules, checkpoints and logs do not know the backend. Both backends compute the same
step (`bert_keras.training.on_tensorflow.steps` has the formulas), so a training that was begun on one goes on on the
other (docs/decisions/0052-one-loop-two-backends.md).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np

from bert_keras.errors import InputError
from bert_keras.objectives.objective import Objective
from bert_keras.training.config import SecondPhase, TrainingConfig
from bert_keras.training.phases import Phase

NO_SECOND_PHASE = SecondPhase()
# Sums of a step besides the objective's: positions (with padding), tokens (without), and the gradient's norm before
# clipping.
COUNTS = ("positions", "tokens", "gradient_norm")


class TrainSteps(Protocol):
    """The state of a training on its devices, and the compiled functions that change it.

    Attributes:
        model: the model with the current weights.
        step: number of completed steps.
    """

    @property
    def model(self) -> keras.Model: ...

    @property
    def step(self) -> int: ...

    def feed(self, phase: Phase, first_step: int) -> Iterator[Any]:
        """The batches of a phase from a step on, for `__call__`: read ahead, and split over the devices."""

    def __call__(self, batches: Iterator[Any], count: int, stop: bool = False) -> tuple[dict[str, float], bool]:
        """Run `count` steps; fewer if a stop is requested, or up to the first that is not finite.

        A step whose loss or gradient is not finite is not counted by `step`.

        Args:
            batches: of `feed`.
            count: number of steps.
            stop: whether this worker requests all workers to stop after these steps.

        Returns:
            Sums over the steps of the objective's `sums` and of `COUNTS`, and whether any worker requests to stop;
            equal on all workers.
        """

    def request_stop(self) -> None:
        """Let all workers stop after the step that runs; from any thread."""

    def evaluate(self, batches: Iterable[dict[str, np.ndarray]]) -> dict[str, float]:
        """The objective's sums over batches, without dropout, on one device of this worker."""

    def arrays(self, *, with_optimizer: bool = True) -> dict[str, np.ndarray]:
        """The state by name (`named_variables`)."""

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Set the state; without optimizer's arrays only the weights. ValueError if the names or shapes differ."""


class Devices(Protocol):
    """The devices of a training, and this process's place among the workers.

    Attributes:
        replicas: number of devices of all workers.
        worker: number of this process; worker 0 logs, keeps checkpoints and exports.
        workers: number of processes that train.
    """

    replicas: int
    worker: int
    workers: int

    def describe(self) -> str:
        """The devices of this process, for people: "1 CPU, no GPU is visible (docs/gpus.md)", "4 GPU"."""

    def scope(self) -> contextlib.AbstractContextManager:
        """A context in which a model and its optimizer are made."""

    def of_first_worker(self, number: int) -> int:
        """The number that the first worker has; all workers must call it at the same point."""

    def train_steps(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, objective: Objective, config: TrainingConfig
    ) -> TrainSteps:
        """The steps of a training; model and optimizer are built, with their first values."""


def open_devices(config: TrainingConfig, second: SecondPhase = NO_SECOND_PHASE, rows_together: int = 1) -> Devices:
    """Open the devices of `config.strategy`; several workers must call it before anything else.

    Each device, and each part of an accumulated batch, has a multiple of `rows_together` rows. A process whose child
    trains (`bert_keras.training.child`) leaves it the devices, and has a processor.

    Raises:
        InputError: a global batch does not divide over the devices, or workers, a GPU or a TPU are missing.
    """
    devices: Devices
    if keras.backend.backend() == "jax":
        from bert_keras.training.on_jax.devices import JaxDevices

        devices = JaxDevices(config.strategy)
    else:
        from bert_keras.training.on_tensorflow.devices import TensorFlowDevices

        devices = TensorFlowDevices(config.strategy if config.backend == "tensorflow" else "processor")
        if config.backend == "jax" and config.strategy == "multi_worker":
            devices.worker = cluster().worker
    parts = devices.replicas * config.gradient_accumulation_steps * rows_together
    together = f" in groups of {rows_together} rows" if rows_together > 1 else ""
    sizes = {
        "training.train_batch_size": config.train_batch_size,
        "training.batch_ramp_from": config.batch_ramp_from,
        "second_phase.train_batch_size": second.train_batch_size if second.num_train_steps else 0,
    }
    for name, size in sizes.items():
        if size % parts:
            raise InputError(
                f"{name} is {size}, which does not divide over {devices.replicas} devices and "
                f"training.gradient_accumulation_steps={config.gradient_accumulation_steps}{together}; give a multiple "
                f"of {parts}"
            )
    return devices


class Cluster(NamedTuple):
    """The workers of a training: their addresses HOST:PORT, and the number of this process."""

    addresses: tuple[str, ...]
    worker: int


def cluster() -> Cluster:
    """The workers that TF_CONFIG names (https://www.tensorflow.org/guide/distributed_training), a chief first.

    Raises:
        InputError: it is missing, or not such JSON.
    """
    try:
        given = json.loads(os.environ.get("TF_CONFIG", "{}"))
    except ValueError as error:
        raise InputError(f"TF_CONFIG is not JSON: {error}") from error
    if not {"cluster", "task"} <= given.keys():
        raise InputError(
            "training.strategy=multi_worker needs the environment variable TF_CONFIG on every worker, with `cluster` "
            "and `task`; one machine with several GPUs trains with training.strategy=mirrored"
        )
    chiefs, workers = (given["cluster"].get(kind, []) for kind in ("chief", "worker"))
    is_chief = given["task"]["type"] == "chief"
    return Cluster((*chiefs, *workers), 0 if is_chief else len(chiefs) + int(given["task"]["index"]))


def described(kinds: dict[str, int]) -> str:
    """Counts of devices by kind, for people."""
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return text if kinds.keys() - {"CPU"} else f"{text}, no GPU is visible (docs/gpus.md)"


def named_variables(model: keras.Model, optimizer: keras.optimizers.Optimizer | None) -> dict[str, keras.Variable]:
    """Weights and the optimizer's variables by name, in order: the names of the arrays of a checkpoint.

    Names do not depend on the backend or the process: paths without their first part, which counts instances, behind
    numbers, because paths may repeat.
    """
    named = {f"model/{number}/{v.path.partition('/')[2]}": v for number, v in enumerate(model.weights)}
    slots = optimizer.variables if optimizer else ()
    return {**named, **{f"optimizer/{number}/{v.name.rpartition('_')[2]}": v for number, v in enumerate(slots)}}


def arrays_of(variables: dict[str, keras.Variable], step: int) -> dict[str, np.ndarray]:
    """The values of variables, and the step, which comes first."""
    values = {name: keras.ops.convert_to_numpy(variable) for name, variable in variables.items()}
    return {"step": np.asarray(step, np.int64), **values}


def assign_arrays(model: keras.Model, optimizer: keras.optimizers.Optimizer, arrays: dict[str, np.ndarray]) -> int:
    """Assign arrays of `arrays_of`, with or without the optimizer's; return the step.

    Raises:
        ValueError: the names, their order or a shape differ; nothing is assigned.
    """
    has_slots = any(name.startswith("optimizer/") for name in arrays)
    variables = named_variables(model, optimizer if has_slots else None)
    wanted = [("step", ()), *((name, tuple(v.shape)) for name, v in variables.items())]
    given = [(name, array.shape) for name, array in arrays.items()]
    if wanted != given:
        number = next((i for i, pair in enumerate(zip(wanted, given, strict=False)) if pair[0] != pair[1]), -1)
        raise ValueError(f"it holds {given[number]} where the model has {wanted[number]}")
    for name, variable in variables.items():
        variable.assign(arrays[name].astype(variable.dtype))
    return int(arrays["step"])
