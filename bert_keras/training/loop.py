"""The training loop: one code path for one or many devices, with checkpoints and exact resume.

Keras' `fit` is not used: on TensorFlow it fails under strategies with several steps per execution, does not resume
exactly, and normalises and clips per replica (docs/decisions/0002-own-training-loop.md).
"""

import io
import itertools
import math
import os
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np

from bert_keras.errors import Diverged, Preempted
from bert_keras.files import atomic_write_anywhere
from bert_keras.models.backbone import BertBackbone
from bert_keras.objectives.objective import Objective
from bert_keras.training.backends.devices import Devices
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.checkpoints import Checkpoints
from bert_keras.training.config import TrainingConfig
from bert_keras.training.flops import Ceiling, known_training_flops
from bert_keras.training.log import TrainingLog, TrainingProgress
from bert_keras.training.optimizer import LearnedRows, create_optimizer, num_encoder_layers
from bert_keras.training.phases import Phase, PhaseCost
from bert_keras.training.preemption import Termination
from bert_keras.training.schedules import create_schedule


class TrainingLoop:
    """The training of one model.

    Args:
        create_model: returns the built model; called in the devices' scope, with the dtype policy of the run.
        phases: the examples from step 0 to `config.num_train_steps` (`bert_keras.training.phases.phases_of`).
        directory: folder of checkpoints and logs, common to all workers. The same directory with the same arguments
            resumes.
        devices: result of `open_devices(config)`, which several workers must call before anything else.
        learned_rows: of an initial model, what `config.freeze_initial` does not freeze.
        on_checkpoint: called with the step after each checkpoint.
    """

    def __init__(
        self,
        create_model: Callable[[], keras.Model],
        objective: Objective,
        config: TrainingConfig,
        phases: Sequence[Phase],
        directory: str,
        devices: Devices | None = None,
        learned_rows: LearnedRows | None = None,
        on_checkpoint: Callable[[int], None] | None = None,
    ):
        self._on_checkpoint = on_checkpoint or (lambda step: None)
        self.objective, self.config, self.phases, self.directory = objective, config, phases, directory
        self.devices = devices or open_devices(config)
        self._schedule = create_schedule(config)
        keras.mixed_precision.set_dtype_policy(config.mixed_precision)
        try:
            with self.devices.scope():
                model = create_model()
                for layer in model._flatten_layers():
                    if isinstance(layer, BertBackbone):
                        layer.rematerializes, layer.pads_on_the_right = config.rematerialize, True
                optimizer = create_optimizer(config, num_encoder_layers(model.trainable_variables), learned_rows)
                optimizer.build(model.trainable_variables)
        finally:
            keras.mixed_precision.set_dtype_policy("float32")
        self.steps = self.devices.train_steps(model, optimizer, objective, config)
        self.checkpoints = Checkpoints(self.steps, directory, config.keep_checkpoint_max, self.devices.worker)

    @property
    def model(self) -> keras.Model:
        """The model, with the weights of the steps so far."""
        return self.steps.model

    def run(self) -> keras.Model:
        """Train to `num_train_steps`, from the newest checkpoint if there is one, and return the model.

        Raises:
            Diverged: the loss or the gradient is not finite; names the step, the learning rate, and the saved batch.
            StageError: all checkpoints are damaged, or a checkpoint cannot be written.
            Preempted: SIGTERM or Ctrl-C was received; the checkpoint of this step is written.
        """
        config = self.config
        self.checkpoints.restore_newest()
        first = self.steps.step
        log = TrainingLog(self.directory, first) if self.devices.worker == 0 else None
        if first == config.num_train_steps:
            return self.model
        ceiling = Ceiling(self.devices.replicas, config.mixed_precision.removeprefix("mixed_"))
        bar = TrainingProgress(config.num_train_steps, first, self.devices.describe(), quiet=self.devices.worker > 0)
        with Termination(self.steps.request_stop) as termination, bar:
            for phase in self.phases:
                self._run_phase(phase, log, bar, termination, ceiling)
        return self.model

    def measure(
        self, clock: Callable[[], float], enough: Callable[[float, int], bool]
    ) -> tuple[list[PhaseCost], float]:
        """Train some steps of each phase, evaluate and save: the costs of the phases and of a checkpoint.

        The weights are then worthless. All workers stop at the same steps; only the first one evaluates. `clock`: what
        is spent. `enough`: whether this number of steps, since then on the clock, measures a phase.
        """
        log = TrainingLog(self.directory, 0) if self.devices.worker == 0 else None
        costs = []
        for phase in self.phases:
            laps, batches = [clock()], self.steps.feed(phase, phase.first_step)
            self.steps(batches, 1)
            laps.append(clock())
            steps, stop = 0, False
            while not stop:
                # Short calls first, because a step may take a minute.
                count = min(self.config.steps_per_execution, max(1, steps))
                sums, stop = self.steps(batches, count, stop=enough(laps[1], steps))
                steps += count
                if log:
                    log.write("train", steps, self.objective.metrics(sums))
            laps.append(clock())
            for _ in range(2):
                if log:
                    log.write("eval", steps, self.evaluate(phase))
                laps.append(clock())
            first, rest, compiling, evaluation = np.diff(laps).tolist()
            step = rest / steps
            costs.append(
                PhaseCost(
                    phase.batch_size,
                    phase.examples.max_seq_length,
                    max(0.0, first - step) + max(0.0, compiling - evaluation),
                    step,
                    evaluation,
                )
            )
        started = clock()
        self.checkpoints.save(0)
        return costs, clock() - started

    def _run_phase(self, phase, log, bar, termination, ceiling) -> None:
        step = self.steps.step
        if step >= phase.end_step:
            return
        config, examples = self.config, phase.examples
        flops = known_training_flops(self.model, examples.max_seq_length, examples.max_predictions_per_seq)
        batches = self.steps.feed(phase, step)
        every = (config.eval_every_steps, config.save_checkpoints_steps, config.steps_per_execution)
        while step < phase.end_step:
            started = time.monotonic()
            # To the next evaluation, checkpoint or log record, or the end of the phase.
            count = min(phase.end_step, *((step // n + 1) * n for n in every)) - step
            sums, stop = self.steps(batches, count)
            seconds = time.monotonic() - started
            reached, asked = self.steps.step, count
            step, count = reached, reached - step
            if count < asked and not (stop and all(map(math.isfinite, sums.values()))):
                raise Diverged(self._not_finite(phase, step, sums))
            metrics = {
                **self.objective.metrics(sums),
                "learning_rate": float(self._schedule(step - 1)),
                "gradient_norm": sums["gradient_norm"] / count,
                "tokens_per_second": sums["positions"] / seconds,
                "useful_tokens_per_second": sums["tokens"] / seconds,
            }
            if flops is not None:
                used = ceiling.utilization(count * phase.batch_size * flops / seconds)
                metrics |= {} if used is None else {"model_flops_utilization": used}
            bar.update(step, metrics)
            if log:
                log.write("train", step, metrics)
                if step % config.eval_every_steps == 0 or step == config.num_train_steps:
                    log.write("eval", step, self.evaluate(phase))
            # Several workers stop at the same step, agreed on before it; a single worker need not wait.
            stop = stop or (bool(termination) and self.devices.workers == 1)
            if step % config.save_checkpoints_steps == 0 or step == config.num_train_steps or stop:
                self.checkpoints.save(step)
                self._on_checkpoint(step)
            if stop and step < config.num_train_steps:
                raise Preempted(f"stopped by {termination.cause} at step {step}; run the same command to resume")

    def _not_finite(self, phase: Phase, step: int, sums: dict[str, float]) -> str:
        """Save the batch of a step whose loss or gradient is not finite; return the error message."""
        path = os.path.join(self.directory, f"not_finite_at_step_{step}.npz")
        if self.devices.worker == 0:
            archive = io.BytesIO()  # a file of a store cannot seek
            np.savez(archive, **next(phase.train_batches(step, self.config.seed)))  # type: ignore[arg-type]
            atomic_write_anywhere(path, archive.getvalue())
        loss = self.objective.metrics(sums)["loss"]
        problem = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
        return (
            f"{problem} at step {step} (learning rate {float(self._schedule(step)):.3g}); its batch is in {path}; "
            "lower training.learning_rate or lengthen training.num_warmup_steps"
        )

    def evaluate(self, phase: Phase) -> dict[str, float]:
        """Metrics of the first `eval_batches` held-out batches of a phase's examples."""
        batches = phase.examples.eval_batches(self.config.eval_batch_size)
        return self.objective.metrics(self.steps.evaluate(itertools.islice(batches, self.config.eval_batches)))
