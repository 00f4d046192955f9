"""The compiled part of training: steps of a global batch, mathematically equal on any number of devices.

w, n: the weights of a batch's predictions and their negative log-likelihoods; r: a replica (one device's part of it).

    loss = sum_r sum(w n) / sum_r sum(w)      masked LM, plus the same for next sentences; or another `Objective`'s
    gradient = sum_r d loss / d variables     scaled down to a global norm of at most `clip_norm`
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.models.dropout import RandomStates
from bert_keras.objectives.objective import Objective
from bert_keras.training.backends.devices import COUNTS
from bert_keras.training.checkpoints import arrays_of, assign_arrays
from bert_keras.training.config import TrainingConfig
from bert_keras.training.phases import Phase

_SUM = tf.distribute.ReduceOp.SUM
_as_it_stands = tf.autograph.experimental.do_not_convert


class TensorFlowSteps:
    """`bert_keras.training.backends.devices.TrainSteps` under a strategy: the steps of a call are one compiled loop.

    The optimizer must not sum over the replicas, which is done here.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        config: TrainingConfig,
        strategy: tf.distribute.Strategy,
    ):
        self.model, self._optimizer = model, optimizer
        # The number of completed steps; also seeds dropout.
        self._step = tf.Variable(0, dtype=tf.int64, name="step")
        self._objective, self._strategy, self._config = objective, strategy, config
        self._returned = (*objective.sums, *COUNTS)
        self._random_states = RandomStates(model)
        self._gathers = bool(objective.whole_batch) and strategy.num_replicas_in_sync > 1
        # AutoGraph translates `_steps` and what has loops of its own; to translate a model and its loss takes seconds.
        compiled = functools.partial(tf.function, jit_compile=config.jit_compile, autograph=False)
        self._gradients = compiled(self._micro_batch)
        self._outputs, self._gradients_by_outputs = compiled(self._part_outputs), compiled(self._part_gradients)
        if self._gathers:
            # It communicates, which neither a nested function nor XLA can.
            self._gradients = _as_it_stands(self._micro_batch)
        self._totals, self._update = _as_it_stands(objective.totals), _as_it_stands(self._clip_and_update)
        if config.jit_compile and strategy.num_replicas_in_sync == 1:
            # One pass over a variable and its means instead of one per operation: 20 ms of CPU instead of 53 for the
            # mini size. With several replicas the update communicates, which XLA cannot compile.
            self._update = compiled(self._clip_and_update)
        self._compiled = tf.function(self._steps)
        self._compiled_evaluation = tf.function(self._evaluated, autograph=False)
        # On the host: `request_stop` writes it while a device runs the loop.
        with tf.device("CPU:0"):
            self._stop = tf.Variable(0.0, trainable=False)

    @property
    def step(self) -> int:
        return int(self._step)

    def request_stop(self) -> None:
        self._stop.assign(1.0)

    def feed(self, phase: Phase, first_step: int) -> Iterator[Any]:
        # TensorFlow keeps the generator for long: it must not keep the model.
        seed = self._config.seed

        def worker_part(context: tf.distribute.InputContext) -> tf.data.Dataset:
            workers = context.num_input_pipelines
            rows = phase.batch_size // context.num_replicas_in_sync

            def parts():
                for batch in phase.train_batches(
                    first_step, seed, worker=context.input_pipeline_id, num_workers=workers
                ):
                    for first in range(0, phase.batch_size // workers, rows):
                        yield {name: values[first : first + rows] for name, values in batch.items()}

            shapes = phase.examples.row_shapes.items()
            signature = {name: tf.TensorSpec([rows, *shape], dtype) for name, (shape, dtype) in shapes}
            batches = tf.data.Dataset.from_generator(parts, output_signature=signature).prefetch(4)
            # Of an endless stream no batch can be short, so its number of rows is known.
            batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
            # Autotuning's thread can miss the end of an iterator, which then waits for its next round: up to a minute,
            # each time. So a training stopped by SIGTERM outlived the grace period of its scheduler.
            options = tf.data.Options()
            options.autotune.enabled = False
            return batches.with_options(options)

        return iter(self._strategy.distribute_datasets_from_function(worker_part))

    def __call__(self, batches: Iterator[Any], count: int, stop: bool = False) -> tuple[dict[str, float], bool]:
        sums, stops = self._compiled(batches, tf.constant(count), tf.constant(float(stop)))
        return dict(zip(self._returned, sums.numpy().tolist(), strict=True)), float(stops) > 0

    def evaluate(self, batches: Iterable[dict[str, np.ndarray]]) -> dict[str, float]:
        totals = dict.fromkeys(self._objective.sums, 0.0)
        for number, batch in enumerate(batches):
            tensors = {name: tf.constant(values) for name, values in batch.items()}
            for name, value in self._compiled_evaluation(tensors, tf.constant(number, tf.int64)).items():
                totals[name] += float(value)
        return totals

    def arrays(self, *, with_optimizer: bool = True) -> dict[str, np.ndarray]:
        return arrays_of(self.model, self._optimizer if with_optimizer else None, self.step)

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        self._step.assign(assign_arrays(self.model, self._optimizer, arrays))

    def _evaluated(self, batch, number):
        """Sums over a batch; `number`, int64, seeds random draws (ELECTRA's replacements)."""
        with keras.StatelessScope(self._random_states.of(number)):
            sums = self._objective.example_sums(self.model(batch, training=False), batch)
        return {name: tf.reduce_sum(value) for name, value in sums.items()}

    def _steps(self, iterator, count, stop):
        totals = tf.zeros(len(self._returned))
        finite, done, stops = tf.constant(True), tf.constant(0), tf.constant(0.0)
        while done < count and finite and stops == 0.0:
            # These lie outside the strategy's scope and cannot be read on a TPU, so they are passed in.
            state = self._step.read_value(), self._stop.read_value()
            sums = self._strategy.reduce(
                _SUM, self._strategy.run(self._replica_step, args=(next(iterator), *state)), axis=None
            )
            sums, stops = sums[:-1], sums[-1]
            finite = tf.reduce_all(tf.math.is_finite(sums))
            self._step.assign_add(tf.cast(finite, tf.int64))
            totals += sums
            done += 1
        return totals, stops + self._strategy.reduce(_SUM, self._strategy.run(tf.identity, args=(stop,)), axis=None)

    def _replica_step(self, batch, step, stop):
        """One step on a replica's rows of the global batch: `self._returned` and `stop`; `step` int64 seeds dropout."""
        replica, clip = tf.distribute.get_replica_context(), self._config.clip
        replicas, replica_id = replica.num_replicas_in_sync, replica.replica_id_in_sync_group
        totals = list(self._totals(batch))
        if clip == "global":
            totals = replica.all_reduce(_SUM, totals)
        sums, gradients = self._accumulated(batch, totals, step * replicas + tf.cast(replica_id, tf.int64))
        if clip == "global":
            gradients = replica.all_reduce(_SUM, gradients)
        norm = self._update(gradients)
        mask = tf.cast(batch["input_mask"], tf.float32)
        sums |= {"positions": tf.cast(tf.size(mask), tf.float32), "tokens": tf.reduce_sum(mask)}
        sums["gradient_norm"] = norm / replicas
        # One tensor needs one reduction over the replicas.
        return tf.stack([*(sums[name] for name in self._returned), stop])

    def _clip_and_update(self, gradients):
        """Clip the gradients and update the variables; return the norm before clipping."""
        gradients, norm = tf.clip_by_global_norm(gradients, self._config.clip_norm)
        if self._config.clip == "per_replica":
            gradients = tf.distribute.get_replica_context().all_reduce(_SUM, gradients)
        self._optimizer.apply(gradients, self.model.trainable_variables)
        return norm

    def _accumulated(self, batch, totals, call):
        """Sums and gradients of a replica's rows, in parts one after another; `call` is unique per replica and step."""
        parts = self._config.gradient_accumulation_steps
        call *= parts
        if parts == 1:
            return self._gradients(batch, totals, call)
        cut = {name: _cut(values, parts) for name, values in batch.items()}
        if self._objective.whole_batch:
            return self._cached(batch, cut, totals, call)
        sums = {name: tf.constant(0.0) for name in self._objective.sums}
        gradients = [tf.zeros(variable.shape) for variable in self.model.trainable_variables]
        for i in tf.range(parts):
            part = {name: values[i] for name, values in cut.items()}
            part_sums, part_gradients = self._gradients(part, totals, call + tf.cast(i, tf.int64))
            sums = {name: value + part_sums[name] for name, value in sums.items()}
            gradients = [total + gradient for total, gradient in zip(gradients, part_gradients, strict=True)]
        return sums, gradients

    def _cached(self, batch, cut, totals, call):
        """Sums and gradients of a batch whose examples depend on each other, in parts `cut`, [parts, rows, ...].

        As GradCache (L. Gao et al. 2021, arXiv 2101.06983, section 3): first the outputs of all parts, without what
        their gradients need, then each part again, with the gradient of the loss by its outputs.
        """
        numbers = tf.range(self._config.gradient_accumulation_steps)

        def part(i):
            return {name: values[i] for name, values in cut.items()}, call + tf.cast(i, tf.int64)

        # One after another: together they would need the memory of the whole batch.
        outputs = tf.map_fn(
            lambda i: self._outputs(*part(i)), numbers, fn_output_signature=tf.float32, parallel_iterations=1
        )
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            sums, loss = self._loss(tf.reshape(outputs, [-1, *outputs.shape[2:]]), batch, totals)
        by_outputs = tape.gradient(loss, outputs)
        gradients = [tf.zeros(variable.shape) for variable in self.model.trainable_variables]
        for i in numbers:
            part_gradients = self._gradients_by_outputs(*part(i), by_outputs[i])
            gradients = [total + gradient for total, gradient in zip(gradients, part_gradients, strict=True)]
        return sums, gradients

    def _part_outputs(self, rows, call):
        with keras.StatelessScope(self._random_states.of(call)):
            return self.model(rows, training=True)

    def _part_gradients(self, rows, call, by_outputs):
        with tf.GradientTape() as tape:
            product = tf.reduce_sum(self._part_outputs(rows, call) * by_outputs)
        return self._by_variables(tape, product)

    def _micro_batch(self, batch, totals, call):
        """Sums and gradients of some rows of a batch with these totals of weights; `call` int64 seeds dropout."""
        with tf.GradientTape() as tape, keras.StatelessScope(self._random_states.of(call)):
            sums, loss = self._loss(self.model(batch, training=True), batch, totals)
        return sums, self._by_variables(tape, loss)

    def _loss(self, outputs, batch, totals):
        """Sums over a replica's share of the batch, and their part of the loss."""
        if self._gathers:
            replica = tf.distribute.get_replica_context()
            outputs = replica.all_gather(outputs, axis=0)
            batch = {name: replica.all_gather(batch[name], axis=0) for name in self._objective.whole_batch}
        sums = self._objective.example_sums(outputs, batch)
        # Each replica has all rows, if gathered; the sums and gradients of the replicas are added later.
        share = replica.num_replicas_in_sync if self._gathers else 1
        sums = {name: tf.reduce_sum(value) / share for name, value in sums.items()}
        return sums, self._objective.loss(sums, tuple(totals))

    def _by_variables(self, tape, loss):
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        if unused := [v.path for v, gradient in zip(variables, gradients, strict=True) if gradient is None]:
            # Weight decay would shrink them to 0.
            raise ValueError(f"the {self._objective.name} loss does not depend on {unused[0]}; set trainable=False")
        return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _cut(values: tf.Tensor, parts: int) -> tf.Tensor:
    """[B, ...] -> [parts, B / parts, ...]; one dimension after the first, a batch's length, may be unknown."""
    return tf.reshape(values, [parts, values.shape[0] // parts, *(-1 if n is None else n for n in values.shape[1:])])
