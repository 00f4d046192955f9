"""Steps of a contestant of `bench_model.py`, for each framework, as a function of their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.model.model_config import Case

Steps = Callable[[int], Any]


def jax_steps(case: Case, model, optimizer, inputs, loss) -> Steps:
    """Steps of a Keras model on JAX, compiled, its buffers donated."""
    import jax

    inputs = jax.device_put(inputs)
    trained, others = ([v.value for v in x] for x in (model.trainable_variables, model.non_trainable_variables))
    if case.mode == "infer":
        predict = jax.jit(lambda *state: [v for k, v in model.stateless_call(*state)[0].items() if "logits" in k])
        return repeat(lambda: jax.block_until_ready(predict(trained, others, inputs)))
    optimizer.build(model.trainable_variables)
    step = jax_train_step(model, optimizer, loss)
    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    state = [(trained, others, [v.value for v in optimizer.variables])]

    def run(count: int):
        for _ in range(count):
            value, state[0] = compiled(*state[0], inputs)
        return float(value)

    return run


def jax_train_step(model, optimizer, loss, clip_norm: float = 1.0) -> Callable:
    """(trained, other, optimizer's variables, inputs) -> (loss, the three after a step), for JAX to compile."""
    import jax
    import jax.numpy as jnp

    def forward(trained, others, inputs):
        outputs, others = model.stateless_call(trained, others, inputs, training=True)
        return loss(outputs, inputs), others

    def step(trained, others, slots, inputs):
        (value, others), gradients = jax.value_and_grad(forward, has_aux=True)(trained, others, inputs)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))
        gradients = [gradient * jnp.minimum(1.0, clip_norm / norm) for gradient in gradients]
        trained, slots = optimizer.stateless_apply(slots, gradients, trained)
        return value, (trained, others, slots)

    return step


class keras_policy:
    """Keras' dtype policy, within a block."""

    def __init__(self, name: str):
        self._name = name

    def __enter__(self):
        import keras

        keras.mixed_precision.set_dtype_policy(self._name)

    def __exit__(self, *_):
        import keras

        keras.mixed_precision.set_dtype_policy("float32")


def repeat(step: Callable[[], Any]) -> Steps:
    def run(count: int):
        for _ in range(count):
            value = step()
        return value

    return run
