"""The devices of a training, and the compiled steps on them: one interface, a package for each backend of Keras.

The loop, the examples, masks, schedules, checkpoints and logs do not know the backend. Both backends compute the same
step (`on_tensorflow.steps` has the formulas), so a training that was begun on one goes on on the other
(docs/decisions/0052-one-loop-two-backends.md).
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np

from bert_keras.errors import InputError
from bert_keras.objectives.objective import Objective
from bert_keras.training.config import TrainingConfig
from bert_keras.training.phases import Phase

# Sums of a step besides the objective's: positions (with padding), tokens (without), and the gradient's norm before
# clipping.
COUNTS = ("positions", "tokens", "gradient_norm")


class TrainSteps(Protocol):
    """The state of a training on its devices, and the compiled functions that change it."""

    @property
    def model(self) -> keras.Model:
        """The model with the current weights."""

    @property
    def step(self) -> int:
        """Number of completed steps."""

    def feed(self, phase: Phase, first_step: int) -> Iterator[Any]:
        """The batches of a phase from a step on, for `__call__`: read ahead, and split over the devices."""

    def __call__(self, batches: Iterator[Any], count: int, stop: bool = False) -> tuple[dict[str, float], bool]:
        """Run `count` steps; fewer if a stop is requested, or up to the first that is not finite, which is not counted.

        `stop`: whether this worker requests all workers to stop after these steps. Returns sums over the steps of the
        objective's `sums` and of `COUNTS`, and whether any worker requests to stop; equal on all workers.
        """

    def request_stop(self) -> None:
        """Let all workers stop after the step that runs; from any thread."""

    def evaluate(self, batches: Iterable[dict[str, np.ndarray]]) -> dict[str, float]:
        """The objective's sums over batches, without dropout, on one device of this worker."""

    def arrays(self, *, with_optimizer: bool = True) -> dict[str, np.ndarray]:
        """The state by name (`bert_keras.training.checkpoints.arrays_of`)."""

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Set the state; without optimizer's arrays only the weights. ValueError if the names or shapes differ."""


class Devices(Protocol):
    """The devices of a training, and this process's place among the workers."""

    replicas: int  # number of devices of all workers
    worker: int  # number of this process; worker 0 logs, keeps checkpoints and exports
    workers: int  # number of processes that train

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


class Cluster(NamedTuple):
    """The workers of a training: their addresses HOST:PORT, and the number of this process."""

    addresses: tuple[str, ...]
    worker: int


def cluster() -> Cluster:
    """The workers that TF_CONFIG names (https://www.tensorflow.org/guide/distributed_training), a chief first."""
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
