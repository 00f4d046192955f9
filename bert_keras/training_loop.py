"""The training loop: one code path from one device to many, with checkpoints and exact resume.

Keras' `fit` is not used: on TensorFlow it fails under strategies with several steps per execution, does not resume
exactly, and normalises and clips per replica (docs/decisions/0002-own-training-loop.md).
"""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import Checkpoints
from bert_keras.config import BertConfig, TrainingConfig
from bert_keras.errors import Preempted, StageError
from bert_keras.flops import matmul_flops_per_second, training_flops
from bert_keras.heads import BertForPreTraining
from bert_keras.input_pipeline import eval_batches, train_batches
from bert_keras.objectives.mlm_nsp import SUMS, example_sums
from bert_keras.optimizer import create_optimizer, create_schedule
from bert_keras.phases import Phase
from bert_keras.progress import TrainingProgress
from bert_keras.strategy import create_strategy, worker_number
from bert_keras.termination import Termination
from bert_keras.train_step import TrainSteps
from bert_keras.training_log import TrainingLog


def metrics_of(sums: dict[str, float]) -> dict[str, float]:
    """Losses (nats) and accuracies of summed `SUMS`; the loss is mean masked-LM plus mean next-sentence loss."""
    mlm_weight, nsp_weight = max(sums["mlm_weight"], 1e-5), max(sums["nsp_weight"], 1e-5)
    mlm_loss, nsp_loss = sums["mlm_nll"] / mlm_weight, sums["nsp_nll"] / nsp_weight
    return {
        "loss": mlm_loss + nsp_loss,
        "mlm_loss": mlm_loss,
        "mlm_accuracy": sums["mlm_correct"] / mlm_weight,
        "nsp_loss": nsp_loss,
        "nsp_accuracy": sums["nsp_correct"] / nsp_weight,
    }


class TrainingLoop:
    """Pre-trains one model.

    Args:
        model_config: the model.
        config: the run.
        phases: what is read, from step 0 to `config.num_train_steps` (`bert_keras.phases.phases_of`).
        directory: where checkpoints and logs live. The same directory with the same arguments resumes; of several
            workers it is the same for all.
        strategy: of `create_strategy(config)`, which several workers must make before all else.
    """

    def __init__(
        self,
        model_config: BertConfig,
        config: TrainingConfig,
        phases: Sequence[Phase],
        directory: str,
        strategy: tf.distribute.Strategy | None = None,
    ):
        self.config, self.phases, self.directory = config, phases, directory
        self.strategy = strategy or create_strategy(config)
        self._schedule = create_schedule(config)
        self._model_config = model_config
        keras.mixed_precision.set_dtype_policy(config.mixed_precision)
        try:
            with self.strategy.scope():
                self.model = BertForPreTraining(model_config, seed=config.seed)
                self.model.build()
                self.optimizer = create_optimizer(config, model_config.num_hidden_layers)
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
        self._train_steps = TrainSteps(self.model, self.optimizer, self.step, self.strategy, config)
        self._eval_step = tf.function(self._eval_step_eager)

    def run(self) -> BertForPreTraining:
        """Trains to `num_train_steps`, from the newest checkpoint if there is one, and returns the model.

        Raises:
            StageError: the loss or the gradient is not finite: says the step, the learning rate, and where the batch
                is. Or no checkpoint is whole, or none can be written.
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
        config, spec = self.config, phase.examples.spec
        flops = training_flops(self._model_config, spec.max_seq_length, spec.max_predictions_per_seq)
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
                raise StageError(self._not_finite(phase, done, sums))
            step = done
            examples = count * phase.batch_size
            metrics = {
                **metrics_of(sums),
                "learning_rate": rate,
                "gradient_norm": sums["gradient_norm"] / count,
                "tokens_per_second": examples * spec.max_seq_length / seconds,
                "useful_tokens_per_second": sums["tokens"] / seconds,
                "model_flops_utilization": examples * flops / seconds / ceiling,
            }
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
        examples = phase.examples
        return train_batches(
            examples.train_files,
            examples.spec.layout,
            num_examples=examples.spec.train_examples,
            batch_size=phase.batch_size,
            first_example=phase.examples_read(first_step),
            seed=self.config.seed,
            dynamic_masking=examples.dynamic_masking,
            **part,
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
        loss = metrics_of(sums)["loss"]
        what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
        return (
            f"{what} at step {step} (learning rate {float(self._schedule(step)):.3g}); its batch is in {path}; lower "
            "training.learning_rate or lengthen training.num_warmup_steps"
        )

    def evaluate(self, phase: Phase) -> dict[str, float]:
        """Metrics of the first `eval_batches` batches of the held-out split of a phase's examples."""
        totals = dict.fromkeys(SUMS, 0.0)
        batches = eval_batches(
            phase.examples.eval_files,
            phase.examples.spec.layout,
            batch_size=self.config.eval_batch_size,
        )
        for batch in batches.take(self.config.eval_batches):
            for name, value in self._eval_step(batch).items():
                totals[name] += float(value)
        return metrics_of(totals)

    def _eval_step_eager(self, batch):
        sums = example_sums(self.model(batch, training=False), batch)
        return {name: tf.reduce_sum(value) for name, value in sums.items()}

    def _next_stop(self, step: int, phase: Phase) -> int:
        """The next step at which something other than training is due."""
        every = (self.config.eval_every_steps, self.config.save_checkpoints_steps)
        return min(phase.end_step, *((step // n + 1) * n for n in every))
