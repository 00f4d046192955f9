"""The training loop: one code path from one device to many, with checkpoints and exact resume.

Keras' `fit` is not used: on TensorFlow it fails under strategies with several steps per execution, does not resume
exactly, and normalises and clips per replica (docs/decisions/0002-own-training-loop.md).
"""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import Checkpoints
from bert_keras.config import TrainingConfig
from bert_keras.errors import Diverged, Preempted
from bert_keras.flops import known_training_flops, matmul_flops_per_second
from bert_keras.objectives.objective import Objective
from bert_keras.optimizer import create_optimizer, create_schedule, num_encoder_layers
from bert_keras.phases import Phase
from bert_keras.progress import TrainingProgress
from bert_keras.strategy import create_strategy, worker_number
from bert_keras.termination import Termination
from bert_keras.train_step import RandomStates, TrainSteps
from bert_keras.training_log import TrainingLog


class TrainingLoop:
    """Trains one model.

    Args:
        create_model: returns the model, built; called under the strategy's scope, in the dtype policy of the run.
        objective: what it learns.
        config: the run.
        phases: what is read, from step 0 to `config.num_train_steps` (`bert_keras.phases.phases_of`).
        directory: where checkpoints and logs live. The same directory with the same arguments resumes; of several
            workers it is the same for all.
        strategy: of `create_strategy(config)`, which several workers must make before all else.
    """

    def __init__(
        self,
        create_model: Callable[[], keras.Model],
        objective: Objective,
        config: TrainingConfig,
        phases: Sequence[Phase],
        directory: str,
        strategy: tf.distribute.Strategy | None = None,
    ):
        self.objective, self.config, self.phases, self.directory = objective, config, phases, directory
        self.strategy = strategy or create_strategy(config)
        self._schedule = create_schedule(config)
        keras.mixed_precision.set_dtype_policy(config.mixed_precision)
        try:
            with self.strategy.scope():
                self.model = create_model()
                self.optimizer = create_optimizer(config, num_encoder_layers(self.model.weights))
                self.optimizer.build(self.model.trainable_variables)
        finally:
            keras.mixed_precision.set_dtype_policy("float32")
        self.step = tf.Variable(0, dtype=tf.int64, name="step")
        checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, step=self.step)
        self._worker = worker_number(self.strategy)
        self._has_peers = isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self._checkpoints = Checkpoints(
            checkpoint, os.path.join(directory, "checkpoints"), config.keep_checkpoint_max, self._worker
        )
        self._train_steps = TrainSteps(self.model, self.optimizer, objective, self.step, self.strategy, config)
        self._random_states = RandomStates(self.model)
        self._eval_step = tf.function(self._eval_step_eager)

    def run(self) -> keras.Model:
        """Trains to `num_train_steps`, from the newest checkpoint if there is one, and returns the model.

        Raises:
            Diverged: the loss or the gradient is not finite: says the step, the learning rate, and where the batch is.
            StageError: no checkpoint is whole, or none can be written.
            Preempted: SIGTERM came; the checkpoint of this step is written.
        """
        config = self.config
        self._checkpoints.restore_newest()
        first = int(self.step)
        log = TrainingLog(self.directory, first) if self._worker == 0 else None
        ceiling = self.strategy.num_replicas_in_sync * matmul_flops_per_second(
            "bfloat16" if config.mixed_precision == "mixed_bfloat16" else "float32"
        )
        bar = TrainingProgress(config.num_train_steps, first, quiet=self._worker > 0)
        with Termination() as termination, bar:
            for phase in self.phases:
                self._run_phase(phase, log, bar, termination, ceiling)
        return self.model

    def _run_phase(self, phase, log, bar, termination, ceiling) -> None:
        step = int(self.step)
        if step >= phase.end_step:
            return
        config, examples = self.config, phase.examples
        flops = known_training_flops(self.model, examples.max_seq_length, examples.max_predictions_per_seq)
        iterator = iter(self._batches(phase, step))
        while step < phase.end_step:
            started = time.monotonic()
            count = min(config.steps_per_execution, self._next_stop(step, phase) - step)
            rate = float(self._schedule(step + count - 1))
            sums, stop = self._train_steps(iterator, count, stop=bool(termination))
            # Several workers stop at the same step, by what each told the others before it; one alone need not wait.
            stop = stop or (bool(termination) and not self._has_peers)
            seconds = time.monotonic() - started
            if (done := int(self.step)) < step + count:
                raise Diverged(self._not_finite(phase, done, sums))
            step = done
            metrics = {
                **self.objective.metrics(sums),
                "learning_rate": rate,
                "gradient_norm": sums["gradient_norm"] / count,
                "tokens_per_second": sums["positions"] / seconds,
                "useful_tokens_per_second": sums["tokens"] / seconds,
            }
            if flops is not None:
                metrics["model_flops_utilization"] = count * phase.batch_size * flops / seconds / ceiling
            bar.update(step, metrics)
            if log:
                log.write("train", step, metrics)
                if step % config.eval_every_steps == 0 or step == config.num_train_steps:
                    log.write("eval", step, self.evaluate(phase))
                    log.write_histograms(step, self.model)
            if step % config.save_checkpoints_steps == 0 or step == config.num_train_steps or stop:
                self._checkpoints.save(step)
            if stop and step < config.num_train_steps:
                raise Preempted(f"stopped by SIGTERM at step {step}; the same command goes on from there")

    def _batches(self, phase: Phase, first_step: int) -> tf.distribute.DistributedDataset:
        """The batches of a phase from a step on, each worker's part of them (docs/decisions/0008)."""

        def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            workers = context.num_input_pipelines
            part = {"worker": context.input_pipeline_id, "num_workers": workers}
            return self._stream(phase, first_step, **part, replicas=context.num_replicas_in_sync // workers)

        return self.strategy.distribute_datasets_from_function(of_worker)

    def _stream(self, phase: Phase, first_step: int, **part: int) -> tf.data.Dataset:
        first_example = phase.examples_read(first_step)
        return phase.examples.train_batches(
            batch_size=phase.batch_size, first_example=first_example, seed=self.config.seed, **part
        )

    def _not_finite(self, phase: Phase, step: int, sums: dict[str, float]) -> str:
        """What to say of a step whose loss or gradient is not finite; writes its batch down."""
        path = os.path.join(self.directory, f"not_finite_at_step_{step}.npz")
        if self._worker == 0:
            batch = next(iter(self._stream(phase, step)))
            archive = io.BytesIO()
            np.savez(archive, **{name: value.numpy() for name, value in batch.items()})
            with tf.io.gfile.GFile(path, "wb") as file:
                file.write(archive.getvalue())
        loss = self.objective.metrics(sums)["loss"]
        what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
        return (
            f"{what} at step {step} (learning rate {float(self._schedule(step)):.3g}); its batch is in {path}; lower "
            "training.learning_rate or lengthen training.num_warmup_steps"
        )

    def evaluate(self, phase: Phase) -> dict[str, float]:
        """Metrics of the first `eval_batches` batches of the held-out split of a phase's examples."""
        totals = dict.fromkeys(self.objective.sums, 0.0)
        batches = phase.examples.eval_batches(self.config.eval_batch_size)
        for number, batch in batches.take(self.config.eval_batches).enumerate():
            for name, value in self._eval_step(batch, number).items():
                totals[name] += float(value)
        return self.objective.metrics(totals)

    def _eval_step_eager(self, batch, number):
        """Sums over a batch; `number`, int64, decides what is drawn (ELECTRA's replacements), if anything is."""
        with self._random_states.of(number):
            sums = self.objective.example_sums(self.model(batch, training=False), batch)
        return {name: tf.reduce_sum(value) for name, value in sums.items()}

    def _next_stop(self, step: int, phase: Phase) -> int:
        """The next step at which something other than training is due."""
        every = (self.config.eval_every_steps, self.config.save_checkpoints_steps)
        return min(phase.end_step, *((step // n + 1) * n for n in every))
