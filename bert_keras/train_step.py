"""The compiled part of training: steps of a global batch, the same mathematics on any number of devices.

w, n: the weights of a batch's predictions and their negative log-likelihoods; r: a replica (one device's part of it).

    loss = sum_r sum(w n) / sum_r sum(w)      masked LM, plus the same of next sentences; or another `Objective`'s
    gradient = sum_r d loss / d variables     scaled down to a global norm of at most `clip_norm`
"""

from __future__ import annotations

import contextlib

import keras
import tensorflow as tf

from bert_keras.config import TrainingConfig
from bert_keras.objectives.objective import Objective

_SUM = tf.distribute.ReduceOp.SUM
# What a step returns besides the objective's sums: positions (padding too), tokens (not padding), and the gradient's
# norm before it is clipped.
COUNTS = ("positions", "tokens", "gradient_norm")


class RandomStates:
    """Dropout (and other draws) of a model as a function of its seeds and a number alone.

    A generator's state is two words, its seed and how often it was called. So a run that resumes draws what it would
    have drawn, on any number of devices, without a state in the checkpoint; and no two replicas the same.
    """

    def __init__(self, model: keras.Model):
        layers = [model, *model._flatten_layers(include_self=False)]
        generators = [getattr(layer, "seed_generator", None) for layer in layers]
        states = [generator.state for generator in generators if generator is not None]
        self._states = [(state, int(keras.ops.convert_to_numpy(state)[0])) for state in states]

    def of(self, call: tf.Tensor) -> contextlib.AbstractContextManager:
        """Within it, what is drawn is that of `call`, an int64 scalar."""
        states = [(state, tf.stack([tf.cast(seed, tf.int64), call])) for state, seed in self._states]
        return keras.StatelessScope(states)


class TrainSteps:
    """Calls: `count` optimizer steps in one call of a compiled loop.

    Args:
        model, optimizer, step: made under `strategy`; `step`, int64, counts what was done, and decides dropout.
        objective: what the model learns.
        strategy: whose devices take part.
        config: the run.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        step: tf.Variable,
        strategy: tf.distribute.Strategy,
        config: TrainingConfig,
    ):
        self._model, self._optimizer, self._step = model, optimizer, step
        self._objective, self._strategy, self._config = objective, strategy, config
        self._returned = (*objective.sums, *COUNTS)
        self._random_states = RandomStates(model)
        self._gradients = tf.function(self._micro_batch, jit_compile=config.jit_compile)
        self._update = self._clip_and_update
        if config.jit_compile and strategy.num_replicas_in_sync == 1:
            # One pass over a variable and its means, not one for each operation of the update: for the mini size 20 ms
            # of CPU instead of 53. Several replicas meet in the update, which XLA cannot compile.
            self._update = tf.function(self._clip_and_update, jit_compile=True)
        self._compiled = tf.function(self._steps)

    def __call__(self, iterator, count: int, stop: bool = False) -> tuple[dict[str, float], bool]:
        """Runs `count` steps, or up to the first whose loss or gradient is not finite; `step` does not count that one.

        Args:
            iterator: of the strategy's distributed batches.
            count: steps.
            stop: whether this worker asks all of them to stop after these steps.

        Returns:
            Sums over the steps of each of the objective's `sums` and of `COUNTS`, and whether a worker asks to stop.
        """
        sums, stops = self._compiled(iterator, tf.constant(count), tf.constant(float(stop)))
        return dict(zip(self._returned, sums.numpy().tolist(), strict=True)), float(stops) > 0

    def _steps(self, iterator, count, stop):
        totals = tf.zeros(len(self._returned))
        finite, done = tf.constant(True), tf.constant(0)
        while done < count and finite:
            sums = self._strategy.run(self._replica_step, args=(next(iterator),))
            sums = self._strategy.reduce(_SUM, sums, axis=None)
            finite = tf.reduce_all(tf.math.is_finite(sums))
            self._step.assign_add(tf.cast(finite, tf.int64))
            totals += sums
            done += 1
        return totals, self._strategy.reduce(_SUM, self._strategy.run(tf.identity, args=(stop,)), axis=None)

    def _replica_step(self, batch):
        """One step of one replica's part of the global batch: dict of [rows, ...]."""
        replica, config = tf.distribute.get_replica_context(), self._config
        totals = list(self._objective.totals(batch))
        if config.clip == "global":
            totals = replica.all_reduce(_SUM, totals)
        sums, gradients = self._accumulated(batch, totals, replica.replica_id_in_sync_group)
        if config.clip == "global":
            gradients = replica.all_reduce(_SUM, gradients)
        norm = self._update(gradients)
        mask = tf.cast(batch["input_mask"], tf.float32)
        sums |= {"positions": tf.cast(tf.size(mask), tf.float32), "tokens": tf.reduce_sum(mask)}
        sums["gradient_norm"] = norm / replica.num_replicas_in_sync
        # One tensor: one reduction over the replicas.
        return tf.stack([sums[name] for name in self._returned])

    def _clip_and_update(self, gradients):
        """Clips the gradients and updates the variables; returns the norm before."""
        replica, config = tf.distribute.get_replica_context(), self._config
        gradients, norm = tf.clip_by_global_norm(gradients, config.clip_norm)
        if config.clip == "per_replica":
            gradients = replica.all_reduce(_SUM, gradients)
        # The optimizer sums over replicas once more.
        gradients = [gradient / replica.num_replicas_in_sync for gradient in gradients]
        self._optimizer.apply(gradients, self._model.trainable_variables)
        return norm

    def _accumulated(self, batch, totals, replica_id):
        """Sums and gradients of a replica's rows, `gradient_accumulation_steps` parts of them one after another."""
        parts = self._config.gradient_accumulation_steps
        replicas = self._strategy.num_replicas_in_sync
        call = (self._step * replicas + tf.cast(replica_id, tf.int64)) * parts
        if parts == 1:
            return self._gradients(batch, totals, call)
        batch = {name: _cut(values, parts) for name, values in batch.items()}
        sums = {name: tf.constant(0.0) for name in self._objective.sums}
        gradients = [tf.zeros(variable.shape) for variable in self._model.trainable_variables]
        for i in tf.range(parts):
            part = {name: values[i] for name, values in batch.items()}
            more_sums, more = self._gradients(part, totals, call + tf.cast(i, tf.int64))
            sums = {name: value + more_sums[name] for name, value in sums.items()}
            gradients = [gradient + other for gradient, other in zip(gradients, more, strict=True)]
        return sums, gradients

    def _micro_batch(self, batch, totals, call):
        """Sums and gradients of some rows of a batch with these totals of weights; `call` int64, of dropout."""
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape, self._random_states.of(call):
            sums = self._objective.example_sums(self._model(batch, training=True), batch)
            sums = {name: tf.reduce_sum(value) for name, value in sums.items()}
            loss = self._objective.loss(sums, tuple(totals))
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        if unused := [v.path for v, gradient in zip(variables, gradients, strict=True) if gradient is None]:
            # Weight decay would take them to 0.
            raise ValueError(f"the {self._objective.name} loss does not depend on {unused[0]}: make it untrainable")
        return sums, [tf.convert_to_tensor(gradient) for gradient in gradients]


def _cut(values: tf.Tensor, parts: int) -> tf.Tensor:
    """[B, ...] -> [parts, B / parts, ...]; one dimension past the first, the length of a batch, may be unknown."""
    return tf.reshape(values, [parts, values.shape[0] // parts, *(-1 if n is None else n for n in values.shape[1:])])
