"""The number of steps that fits into a budget of hours, core-hours or FLOPs (`training.budget`).

Of time, a training whose weights are thrown away first measures what a step of each phase, an evaluation and a
checkpoint cost. The steps are then fixed and written to `budget.json` in the run's folder, and the run is, bit for bit
and however often it is resumed, the one of these numbers given as settings. Measured steps cannot be kept: the warm-up
is a share of the steps, so the learning rate of the first step depends on the number that is looked for. Of FLOPs
nothing is measured; as in `bert_keras.training.flops`, evaluations are not counted.
"""

import bisect
import dataclasses
import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etils import epath

from bert_keras.errors import InputError
from bert_keras.files import atomic_write_anywhere
from bert_keras.training.backends.devices import Devices
from bert_keras.training.config import BUDGET_FILE, SecondPhase, TrainingConfig, with_steps
from bert_keras.training.flops import known_training_flops
from bert_keras.training.phases import Examples, Phase, PhaseCost, phases_of

if TYPE_CHECKING:
    from bert_keras.training.loop import TrainingLoop

# The fewest steps of a training with a budget, and of the measurement of a phase.
LEAST_STEPS = 20
_MOST_STEPS = 1 << 40
# The share of a budget that is measured, the most seconds a phase, and the share that ends all measuring.
_SHARE, _MOST_SECONDS, _MOST_SHARE = 0.05, 120.0, 0.5


class Costs(NamedTuple):
    """The costs of a run: `start` before its first phase, its phases, each checkpoint."""

    start: float
    phases: Sequence[PhaseCost]
    checkpoint: float

    def of(self, config: TrainingConfig, phases: Sequence[Phase], last: int) -> float:
        """The cost of a run up to step `last`."""
        costs = {(cost.batch_size, cost.max_seq_length): cost for cost in self.phases}
        total = self.start + self.checkpoint * -(-last // config.save_checkpoints_steps)
        for phase in phases:
            end, every = min(last, phase.end_step), config.eval_every_steps
            if end > phase.first_step:
                cost = costs[phase.batch_size, phase.examples.max_seq_length]
                evaluations = end // every - phase.first_step // every + (end == last and end % every > 0)
                total += cost.start + cost.step * (end - phase.first_step) + cost.evaluation * evaluations
        return total


class Budget:
    """The budget of one run, in `directory`, common to all workers; the settings' numbers of steps are shares."""

    def __init__(
        self,
        directory: str,
        training: TrainingConfig,
        second: SecondPhase,
        examples: Sequence[Examples],
        devices: Devices,
    ):
        self._path, self._directory = os.path.join(directory, BUDGET_FILE), os.path.join(directory, "measuring")
        self._training, self._second, self._examples, self._devices = training, second, examples, devices
        self._limit, self._unit = training.budget_limit or (0.0, "")
        self._account: dict[str, Any] = {}
        of_cores = self._unit == "core-seconds"
        read, workers = (time.process_time, devices.workers) if of_cores else (time.monotonic, 1)
        started = read()
        self._clock = lambda: workers * (read() - started)

    def fix(
        self, create_loop: "Callable[[TrainingConfig, Sequence[Phase], str], TrainingLoop]"
    ) -> tuple[TrainingConfig, SecondPhase]:
        """The settings with the number of steps: that which the run was begun with, or else one that fits.

        `create_loop`: makes a loop from settings, phases and a folder. InputError: too few steps fit, or the FLOPs of
        the model are not known.
        """
        if epath.Path(self._path).exists():
            self._account = json.loads(epath.Path(self._path).read_text())
        else:
            self._measure(create_loop)
        return self._with(self._account["num_train_steps"])[0]

    def note(self, step: int) -> None:
        """Write what is used up to a checkpoint; what a killed process did after its last one is not counted."""
        if self._devices.worker:
            return
        (training, _), phases = self._with(self._account["num_train_steps"])
        used = self._account["used"] + self._clock()
        if self._unit == "FLOPs":
            costs = self._account["costs"]
            costs = Costs(costs["start"], [PhaseCost(**phase) for phase in costs["phases"]], costs["checkpoint"])
            used = costs.of(training, phases, step)
        atomic_write_anywhere(self._path, json.dumps({**self._account, "used": used}, indent=2) + "\n")
        if step == training.num_train_steps:
            _tell(f"used {used:.4g} of {self._limit:.4g} {self._unit} ({used / self._limit:.1%})")

    def _with(self, steps: int) -> tuple[tuple[TrainingConfig, SecondPhase], list[Phase]]:
        settings = with_steps(self._training, self._second, steps)
        return settings, phases_of(*settings, self._examples)

    def _all_phases(self) -> list[Phase]:
        """A phase for each batch size and length that any number of steps may have, also of a ramp of few steps."""
        training, second = self._training, self._second
        ramp = (
            max(training.batch_ramp_steps, training.train_batch_size.bit_length()) if training.batch_ramp_steps else 0
        )
        steps = max(training.num_train_steps, ramp + 1 + second.num_train_steps)
        training = dataclasses.replace(training, num_train_steps=steps, batch_ramp_steps=ramp)
        return phases_of(training, second, self._examples)

    def _measure(self, create_loop: "Callable[[TrainingConfig, Sequence[Phase], str], TrainingLoop]") -> None:
        loop = create_loop(self._training, self._all_phases(), self._directory)
        costs = self._flops(loop) if self._unit == "FLOPs" else self._time(loop)
        del loop
        gc.collect()  # its weights, before the run's own are made
        spent = 0.0 if self._unit == "FLOPs" else self._clock()

        def cost(steps: int) -> float:
            return spent + costs.of(self._training, self._with(steps)[1], steps)

        # All workers take the first one's number, though each has measured.
        steps = self._devices.of_first_worker(bisect.bisect_right(range(1, _MOST_STEPS), self._limit, key=cost))
        if steps < LEAST_STEPS:
            raise InputError(
                f"training.budget is {self._training.budget}: {steps} steps fit into it, fewer than {LEAST_STEPS}; "
                f"give at least {cost(LEAST_STEPS):.3g} {self._unit}"
            )
        self._account = {
            "budget": self._training.budget,
            "limit": self._limit,
            "unit": self._unit,
            "num_train_steps": steps,
            "costs": {**costs._asdict(), "phases": [phase._asdict() for phase in costs.phases]},
            "used": 0.0,
        }
        if self._devices.worker == 0:
            if epath.Path(self._directory).exists():
                epath.Path(self._directory).rmtree()
            atomic_write_anywhere(self._path, json.dumps(self._account, indent=2) + "\n")
            each = ", ".join(f"{c.step:.3g} of {c.batch_size} x {c.max_seq_length} tokens" for c in costs.phases)
            _tell(f"{steps:,} steps; {self._unit} a step: {each}")

    def _flops(self, loop: "TrainingLoop") -> Costs:
        phases = []
        for phase in loop.phases:
            tokens, predictions = phase.examples.max_seq_length, phase.examples.max_predictions_per_seq
            flops = known_training_flops(loop.model, tokens, predictions)
            if flops is None:
                raise InputError(
                    f"training.budget is {self._training.budget}, but the FLOPs of {type(loop.model).__name__} are "
                    "unknown; give hours or core-hours"
                )
            phases.append(PhaseCost(phase.batch_size, tokens, 0.0, phase.batch_size * flops, 0.0))
        return Costs(0.0, phases, 0.0)

    def _time(self, loop: "TrainingLoop") -> Costs:
        start = self._clock()
        share, end = min(_SHARE * self._limit, _MOST_SECONDS) / len(loop.phases), _MOST_SHARE * self._limit

        def enough(started: float, steps: int) -> bool:
            now = self._clock()
            return now >= end or (steps >= LEAST_STEPS and now - started >= share)

        phases, checkpoint = loop.measure(self._clock, enough)
        return Costs(start, phases, checkpoint)


def _tell(text: str) -> None:
    print(f"budget: {text}", flush=True)
