"""The compiled step of training on JAX: the mathematics of `on_tensorflow.steps`, line by line.

    TensorFlow                        JAX
    strategy.run                      shard_map over the axis "replica"
    replica.all_reduce, all_gather    psum, all_gather
    replica_id_in_sync_group          axis_index

Legend: state, a dict of arrays, equal on all devices: `trained`, `fixed` (weights that are not), `slots` (the
optimizer's), `step` int32 and `finite` bool, false after a step that was not.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_keras.data.prefetching import prefetched
from bert_keras.models.dropout import RandomStates
from bert_keras.objectives.objective import Objective
from bert_keras.training.backends.devices import COUNTS
from bert_keras.training.checkpoints import arrays_of, assign_arrays
from bert_keras.training.config import TrainingConfig
from bert_keras.training.phases import Phase

_AXIS = "replica"
_WHOLE, _ROWS = PartitionSpec(), PartitionSpec(_AXIS)
# Batches read before they are needed, and steps that are sent to a device before the first one's sums are read. Steps
# on CPUs wait for each other's threads, and gain nothing.
_READ_AHEAD, _STEPS_AHEAD = 4, 2


class JaxSteps:
    """`bert_keras.training.backends.devices.TrainSteps` over a mesh, the devices of all workers: one compiled step."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        config: TrainingConfig,
        mesh: Mesh,
    ):
        self._model, self._optimizer, self._objective, self._config = model, optimizer, objective, config
        self._mesh, self._replicas, self._workers = mesh, mesh.size, jax.process_count()
        self._returned = (*objective.sums, *COUNTS)
        self._random_states = RandomStates(model)
        self._gathers = bool(objective.whole_batch) and self._replicas > 1
        self._fixed = [weight for weight in model.weights if not weight.trainable]
        self._ahead = 0 if mesh.devices.flat[0].platform == "cpu" else _STEPS_AHEAD
        step = _shard_map(self._replica_step, mesh, (_WHOLE, _ROWS, _ROWS), (_WHOLE, _WHOLE))
        self._compiled, self._compiled_evaluation = jax.jit(step, donate_argnums=0), jax.jit(self._evaluated)
        self._stop = threading.Event()
        self._state = self._state_of_variables(0)

    @property
    def model(self) -> keras.Model:
        state = self._on_one_device()
        for variables, values in ((self._model.trainable_variables, "trained"), (self._optimizer.variables, "slots")):
            for variable, value in zip(variables, state[values], strict=True):
                # A copy: the next step's result takes the place of the state.
                variable.assign(jnp.array(value))
        return self._model

    @property
    def step(self) -> int:
        return int(self._state["step"])

    def request_stop(self) -> None:
        self._stop.set()

    def feed(self, phase: Phase, first_step: int) -> Iterator[Any]:
        rows = NamedSharding(self._mesh, _ROWS)
        worker = jax.process_index()

        def on_devices() -> Iterator[dict[str, jax.Array]]:
            batches = phase.train_batches(first_step, self._config.seed, worker=worker, num_workers=self._workers)
            for batch in batches:
                yield {name: jax.make_array_from_process_local_data(rows, values) for name, values in batch.items()}

        return prefetched(on_devices(), _READ_AHEAD)

    def __call__(self, batches: Iterator[Any], count: int, stop: bool = False) -> tuple[dict[str, float], bool]:
        totals, sent = np.zeros(len(self._returned) + 1), deque[jax.Array]()
        for number in range(count):
            is_asked = self._stop.is_set() or (stop and number == count - 1)
            self._state, sums = self._compiled(self._state, next(batches), self._on_each_device(is_asked))
            sent.append(sums)
            if len(sent) > self._ahead:
                totals += np.asarray(sent.popleft(), np.float64)
            # All workers read the sums of the same steps, so they stop after the same step.
            if totals[-1] > 0 or not np.isfinite(totals).all():
                break
        *values, stops = sum((np.asarray(sums, np.float64) for sums in sent), totals).tolist()
        return dict(zip(self._returned, values, strict=True)), stops > 0

    def evaluate(self, batches: Iterable[dict[str, np.ndarray]]) -> dict[str, float]:
        totals, state = dict.fromkeys(self._objective.sums, 0.0), self._on_one_device()
        weights = state["trained"], state["fixed"]
        for number, batch in enumerate(batches):
            for name, value in self._compiled_evaluation(*weights, batch, number).items():
                totals[name] += float(value)
        return totals

    def arrays(self, *, with_optimizer: bool = True) -> dict[str, np.ndarray]:
        return arrays_of(self.model, self._optimizer if with_optimizer else None, self.step)

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        self._state = self._state_of_variables(assign_arrays(self._model, self._optimizer, arrays))

    def _state_of_variables(self, step: int) -> dict[str, Any]:
        """The state with the values of the variables, on all devices."""
        whole = NamedSharding(self._mesh, _WHOLE)

        def placed(value) -> jax.Array:
            array = np.array(value)
            return jax.make_array_from_callback(array.shape, whole, lambda index: array[index])

        variables = {
            "trained": self._model.trainable_variables,
            "fixed": self._fixed,
            "slots": self._optimizer.variables,
        }
        state = {name: [placed(v.value) for v in those] for name, those in variables.items()}
        return {**state, "step": placed(np.int32(step)), "finite": placed(True)}

    def _on_one_device(self) -> dict[str, Any]:
        return jax.tree.map(lambda array: array.addressable_data(0), self._state)

    def _on_each_device(self, flag: bool) -> jax.Array:
        """float32 [replicas]: 1 on this worker's devices if `flag`."""
        flags = np.full(self._replicas // self._workers, flag, np.float32)
        return jax.make_array_from_process_local_data(NamedSharding(self._mesh, _ROWS), flags)

    def _replica_step(self, state, batch, stop):
        """One step on a replica's rows of the global batch; the new state, and `self._returned` and `stop`, summed."""
        clip = self._config.clip
        totals = self._objective.totals(batch)
        if clip == "global":
            totals = jax.lax.psum(totals, _AXIS)
        call = state["step"] * self._replicas + jax.lax.axis_index(_AXIS)
        sums, gradients = self._accumulated(state, batch, totals, call)
        if clip == "global":
            gradients = jax.lax.psum(gradients, _AXIS)
        # As tf.clip_by_global_norm computes it.
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))
        scale = self._config.clip_norm * jnp.minimum(1 / norm, 1 / self._config.clip_norm)
        gradients = [gradient * scale for gradient in gradients]
        if clip == "per_replica":
            gradients = jax.lax.psum(gradients, _AXIS)
        trained, slots = self._optimizer.stateless_apply(state["slots"], gradients, state["trained"])
        mask = jnp.asarray(batch["input_mask"], jnp.float32)
        sums |= {"positions": jnp.float32(mask.size), "tokens": mask.sum(), "gradient_norm": norm / self._replicas}
        summed = jax.lax.psum(jnp.stack([*(sums[name] for name in self._returned), stop[0]]), _AXIS)
        finite = state["finite"] & jnp.isfinite(summed).all()
        step = state["step"] + finite.astype(jnp.int32)
        return {**state, "trained": trained, "slots": slots, "step": step, "finite": finite}, summed

    def _accumulated(self, state, batch, totals, call):
        """Sums and gradients of a replica's rows, in parts one after another; `call` is unique per replica and step."""
        parts = self._config.gradient_accumulation_steps
        call *= parts
        if parts == 1:
            return self._micro_batch(state, batch, totals, call)
        cut = {name: v.reshape(parts, v.shape[0] // parts, *v.shape[1:]) for name, v in batch.items()}
        if self._objective.whole_batch:
            return self._cached(state, batch, cut, totals, call)
        zeros = {name: jnp.zeros(()) for name in self._objective.sums}, [jnp.zeros(v.shape) for v in state["trained"]]

        def add(so_far, part):
            number, rows = part
            return jax.tree.map(jnp.add, so_far, self._micro_batch(state, rows, totals, call + number)), None

        return jax.lax.scan(add, zeros, (jnp.arange(parts), cut))[0]

    def _cached(self, state, batch, cut, totals, call):
        """GradCache, as in `on_tensorflow.steps`."""

        def outputs_of(trained, part):
            number, rows = part
            with self._with_values(trained, state["fixed"], call + number):
                return self._model(rows, training=True)

        def loss(outputs):
            return self._loss(outputs.reshape(-1, *outputs.shape[2:]), batch, totals)

        def add(so_far, part):
            *part, by_outputs = part
            gradients = jax.grad(lambda trained: jnp.sum(outputs_of(trained, part) * by_outputs))(state["trained"])
            return jax.tree.map(jnp.add, so_far, gradients), None

        parts = jnp.arange(self._config.gradient_accumulation_steps), cut
        outputs = jax.lax.map(lambda part: outputs_of(state["trained"], part), parts)
        by_outputs, sums = jax.grad(loss, has_aux=True)(outputs)
        zeros = [jnp.zeros(values.shape) for values in state["trained"]]
        return sums, jax.lax.scan(add, zeros, (*parts, by_outputs))[0]

    def _micro_batch(self, state, batch, totals, call):
        """Sums and gradients of some rows of a batch with these totals of weights; `call` seeds dropout."""

        def loss(trained):
            with self._with_values(trained, state["fixed"], call):
                outputs = self._model(batch, training=True)
            return self._loss(outputs, batch, totals)

        gradients, sums = jax.grad(loss, has_aux=True)(state["trained"])
        return sums, gradients

    def _loss(self, outputs, batch, totals):
        """The part of the loss of a replica's share of the batch, and its sums."""
        labels = batch
        if self._gathers:
            labels = {name: batch[name] for name in self._objective.whole_batch}
            outputs, labels = jax.lax.all_gather((outputs, labels), _AXIS, tiled=True)
        # Each replica has all rows, if gathered; the sums and gradients of the replicas are added later.
        share = self._replicas if self._gathers else 1
        sums = self._objective.example_sums(outputs, labels)
        sums = {name: value.sum() / share for name, value in sums.items()}
        return self._objective.loss(sums, tuple(totals)), sums

    def _evaluated(self, trained, fixed, batch, number):
        """Sums over a batch; `number` seeds random draws (ELECTRA's replacements)."""
        with self._with_values(trained, fixed, number):
            sums = self._objective.example_sums(self._model(batch, training=False), batch)
        return {name: value.sum() for name, value in sums.items()}

    def _with_values(self, trained, fixed, call) -> keras.StatelessScope:
        """A context in which the model has these weights, and the random draws of `call`."""
        weights = zip([*self._model.trainable_variables, *self._fixed], [*trained, *fixed], strict=True)
        return keras.StatelessScope([*weights, *self._random_states.of(call)])


def _shard_map(function, mesh: Mesh, in_specs, out_specs):
    """`jax.shard_map` without its check of replication; JAX before 0.6 has it elsewhere."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    from jax.experimental.shard_map import shard_map

    return shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_rep=False)
