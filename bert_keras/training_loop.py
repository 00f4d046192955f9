"""The training loop: one code path from one device to many, with checkpoints and exact resume.

Keras' `fit` is not used: on TensorFlow it fails under strategies with several steps per execution, does not resume
exactly, and normalises and clips per replica (docs/decisions/0002-own-training-loop.md).
"""

from __future__ import annotations

import json
import math
import os
import time

import keras
import tensorflow as tf

from bert_keras.config import BertConfig, TrainingConfig
from bert_keras.errors import StageError
from bert_keras.features import ExampleSpec
from bert_keras.heads import BertForPreTraining
from bert_keras.input_pipeline import DynamicMasking, eval_batches, shard_files, train_batches
from bert_keras.objectives.mlm_nsp import SUMS, example_sums, weights
from bert_keras.optimizer import create_optimizer, create_schedule
from bert_keras.progress import TrainingProgress
from bert_keras.strategy import create_strategy

LOG_FILE = "log.jsonl"


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
    """Pre-trains one model from the examples of one artifact.

    Args:
        model_config: the model.
        config: the run.
        spec: what the examples are.
        train_pattern, eval_pattern: globs of the shards of each split.
        directory: where checkpoints and logs live. The same directory with the same arguments resumes.
        dynamic_masking: masks the training examples while they are read; None if they are stored masked.
    """

    def __init__(
        self,
        model_config: BertConfig,
        config: TrainingConfig,
        spec: ExampleSpec,
        train_pattern: str,
        eval_pattern: str,
        directory: str,
        dynamic_masking: DynamicMasking | None = None,
    ):
        self.config, self.spec, self.directory = config, spec, directory
        self._dynamic_masking = dynamic_masking
        self._train_files, self._eval_files = shard_files(train_pattern), shard_files(eval_pattern)
        self.strategy, self._schedule = create_strategy(config), create_schedule(config)
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
        # Dropout's random states are not among the model's weights; without them a resumed run drifts.
        dropouts = [x for x in self.model._flatten_layers() if isinstance(x, keras.layers.Dropout)]
        states = [x.seed_generator.state.value for x in dropouts if getattr(x, "seed_generator", None)]
        checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, step=self.step, dropout_states=states
        )
        self._checkpoints = tf.train.CheckpointManager(
            checkpoint, os.path.join(directory, "checkpoints"), max_to_keep=config.keep_checkpoint_max
        )
        self._gradients = tf.function(self._local_gradients, jit_compile=config.jit_compile)
        self._train_steps = tf.function(self._train_steps_eager)
        self._eval_step = tf.function(self._eval_step_eager)

    # ------------------------------------------------------------------ compiled

    def _local_gradients(self, batch, mlm_weight, nsp_weight):
        """Sums and gradients of one replica's part of a global batch with these totals."""
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            sums = example_sums(self.model(batch, training=True), batch)
            sums = {name: tf.reduce_sum(value) for name, value in sums.items()}
            loss = sums["mlm_nll"] / mlm_weight + sums["nsp_nll"] / nsp_weight
        gradients = tape.gradient(loss, [v.value for v in variables])
        return sums, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _replica_step(self, batch):
        """The mean over the *global* batch and a true global-norm clip, whatever the number of replicas."""
        replica = tf.distribute.get_replica_context()
        total = tf.distribute.ReduceOp.SUM
        mlm_weight, nsp_weight = replica.all_reduce(total, [tf.reduce_sum(value) for value in weights(batch)])
        sums, gradients = self._gradients(batch, mlm_weight + 1e-5, nsp_weight)
        gradients = replica.all_reduce(total, gradients)
        gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm)
        # The optimizer sums over replicas once more.
        gradients = [gradient / replica.num_replicas_in_sync for gradient in gradients]
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return sums

    def _train_steps_eager(self, iterator, steps):
        totals = {name: tf.constant(0.0) for name in SUMS}
        for _ in tf.range(steps):
            sums = self.strategy.run(self._replica_step, args=(next(iterator),))
            totals = {
                name: total + self.strategy.reduce(tf.distribute.ReduceOp.SUM, sums[name], axis=None)
                for name, total in totals.items()
            }
            self.step.assign_add(1)
        return totals

    def _eval_step_eager(self, batch):
        sums = example_sums(self.model(batch, training=False), batch)
        return {name: tf.reduce_sum(value) for name, value in sums.items()}

    # ------------------------------------------------------------------ Python

    def run(self) -> BertForPreTraining:
        """Trains to `num_train_steps`, from the newest checkpoint if there is one, and returns the model.

        Raises:
            StageError: the loss is not a finite number; says the step and the learning rate.
        """
        config = self.config
        self._checkpoints.restore_or_initialize()
        first = step = int(self.step)
        log = _Log(self.directory, first)
        iterator = iter(self.strategy.experimental_distribute_dataset(self._train_dataset(first)))
        with TrainingProgress(config.num_train_steps, first, config.train_batch_size * self.spec.max_seq_length) as bar:
            while step < config.num_train_steps:
                started = time.monotonic()
                count = min(config.steps_per_execution, self._next_stop(step) - step)
                rate = float(self._schedule(step + count - 1))
                sums = self._train_steps(iterator, tf.constant(count))
                metrics = metrics_of({name: float(value) for name, value in sums.items()})
                step += count
                if not math.isfinite(metrics["loss"]):
                    raise StageError(
                        f"the loss is {metrics['loss']} at step {step} (learning rate {rate:.3g}); "
                        "lower training.learning_rate or lengthen training.num_warmup_steps"
                    )
                seconds = time.monotonic() - started
                tokens = count * config.train_batch_size * self.spec.max_seq_length / seconds
                log.write("train", step, {**metrics, "learning_rate": rate, "tokens_per_second": tokens})
                bar.update(step, metrics)
                if step % config.eval_every_steps == 0 or step == config.num_train_steps:
                    log.write("eval", step, self.evaluate())
                if step % config.save_checkpoints_steps == 0 or step == config.num_train_steps:
                    self._checkpoints.save(checkpoint_number=step)
        return self.model

    def evaluate(self) -> dict[str, float]:
        """Metrics of the first `eval_batches` batches of the held-out split."""
        totals = dict.fromkeys(SUMS, 0.0)
        batches = eval_batches(
            self._eval_files,
            self.spec.layout,
            batch_size=self.config.eval_batch_size,
        )
        for batch in batches.take(self.config.eval_batches):
            for name, value in self._eval_step(batch).items():
                totals[name] += float(value)
        return metrics_of(totals)

    def _train_dataset(self, first_step: int) -> tf.data.Dataset:
        dataset = train_batches(
            self._train_files,
            self.spec.layout,
            num_examples=self.spec.train_examples,
            batch_size=self.config.train_batch_size,
            first_step=first_step,
            seed=self.config.seed,
            dynamic_masking=self._dynamic_masking,
        )
        options = tf.data.Options()
        # A global batch is split over the replicas; files are not.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return dataset.with_options(options)

    def _next_stop(self, step: int) -> int:
        """The next step at which something other than training is due."""
        every = (self.config.eval_every_steps, self.config.save_checkpoints_steps)
        return min(self.config.num_train_steps, *((step // n + 1) * n for n in every))


class _Log:
    """A JSON-lines file and TensorBoard's event files; what a killed run logged past its checkpoint is dropped."""

    def __init__(self, directory: str, first_step: int):
        tf.io.gfile.makedirs(directory)
        path = os.path.join(directory, LOG_FILE)
        kept: list[str] = []
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                # A kill may have cut the last line short; it is past the checkpoint then.
                lines = [line for line in file if line.endswith("\n")]
            kept = [line for line in lines if json.loads(line)["step"] <= first_step]
        with tf.io.gfile.GFile(path + ".part", "w") as file:
            file.write("".join(kept))
        tf.io.gfile.rename(path + ".part", path, overwrite=True)
        self._file = tf.io.gfile.GFile(path, "a")
        self._writers = {
            kind: tf.summary.create_file_writer(os.path.join(directory, "tensorboard", kind))
            for kind in ("train", "eval")
        }

    def write(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **metrics}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        with self._writers[kind].as_default():
            for name, value in metrics.items():
                tf.summary.scalar(name, value, step=step)
            self._writers[kind].flush()
