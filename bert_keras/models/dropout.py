"""Random draws that are equal on every backend: initial weights by NumPy, dropout by a counter-based hash, at low cost.

A BERT draws more random numbers than it has activations: 18 million in a step of the mini size at 32 rows of 128. On
a CPU they take 13 % of its time with Philox, more with Threefry (JAX).
"""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops


class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`, with its seeds and states, but with random bits from `random_bits`.

    An element is dropped if the 32-bit hash of its place, keyed by the seed and the number of the call, is below
    `rate` * 2^32; the others are divided by 1 - `rate`.
    """

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        is_kept = ops.greater_equal(
            random_bits(ops.shape(inputs), self.seed_generator.next()), round(self.rate * 2**32)
        )
        return inputs * (ops.cast(is_kept, inputs.dtype) * (1.0 / (1.0 - self.rate)))


def random_bits(shape, seed):
    """uint32 of `shape`, by two rounds of multiplication and xor-shift (the constants are C. Wellons' lowbias32).

    Args:
        shape: at least one axis; integers, or on TensorFlow scalars.
        seed: integer [2]; the low 32 bits of both are used, so call 2^32 draws what call 0 drew.
    """
    seed = ops.cast(seed, "uint32")
    first = _hash(seed[0] + _hash(seed[1]))
    second = _hash(first ^ _uint32(0x9E3779B9))
    rows = ops.cast(ops.arange(math.prod(shape[:-1])), "uint32")
    columns = ops.cast(ops.arange(shape[-1]), "uint32") * _uint32(0x9E3779B9)
    # Each row starts at a hash of its number, so rows are independent of each other, and so are calls.
    rows = _hash(_hash(rows + first) ^ second)
    return ops.reshape(_hash(rows[:, None] + columns), shape)


class RandomStates:
    """Dropout and other random draws of a model as a function of its seeds and a call number only.

    A generator's state is two words: its seed and its number of draws. So a resumed run draws the same numbers as an
    uninterrupted one, on any number of devices, without a state in the checkpoint; and replicas draw different numbers.
    A generator draws at most `draws_per_call` times per call of the model (an attribute of layers, default 1).
    """

    def __init__(self, model: keras.Model):
        layers = [model, *model._flatten_layers(include_self=False)]
        generators = [getattr(layer, "seed_generator", None) for layer in layers]
        states = [generator.state for generator in generators if generator is not None]
        self._draws = max(getattr(layer, "draws_per_call", 1) for layer in layers)
        self._states = [(state, ops.convert_to_numpy(state)[0]) for state in states]

    def of(self, call) -> list[tuple[keras.Variable, Any]]:
        """For `keras.StatelessScope`: the states with which the draws are those of `call`, an integer scalar."""
        return [
            (state, ops.stack([ops.convert_to_tensor(seed, state.dtype), ops.cast(call, state.dtype) * self._draws]))
            for state, seed in self._states
        ]


def _hash(x):
    x = (x ^ ops.right_shift(x, _uint32(16))) * _uint32(0x7FEB352D)
    # The original's last xor-shift is omitted: it changes only the low half.
    return (x ^ ops.right_shift(x, _uint32(15))) * _uint32(0x846CA68B)


def _uint32(value: int):
    return ops.convert_to_tensor(value, dtype="uint32")


@dataclasses.dataclass(eq=False)
class _Initializer(keras.initializers.Initializer):
    """Base of the initializers below, which say in `_draw` what they draw from a generator: float32 of `shape`."""

    seed: int

    def __init_subclass__(cls) -> None:
        keras.saving.register_keras_serializable("bert_keras")(cls)

    def __call__(self, shape, dtype=None):
        return ops.cast(self._draw(np.random.default_rng(self.seed), shape), dtype or keras.config.floatx())

    def get_config(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(eq=False)
class Normal(_Initializer):
    """Normal with standard deviation `stddev`."""

    stddev: float

    def _draw(self, rng, shape):
        return rng.standard_normal(shape, np.float32) * np.float32(self.stddev)


@dataclasses.dataclass(eq=False)
class TruncatedNormal(Normal):
    """Normal of `stddev` without what is beyond two of them, so that its own standard deviation is 0.88 `stddev`."""

    def _draw(self, rng, shape):
        values = rng.standard_normal(math.prod(shape), np.float32)
        # Drawing again is four times as fast as the inverse of the distribution function.
        beyond = np.flatnonzero(np.abs(values) > 2)
        while beyond.size:
            values[beyond] = rng.standard_normal(beyond.size, np.float32)
            beyond = beyond[np.abs(values[beyond]) > 2]
        return values.reshape(shape) * np.float32(self.stddev)


@dataclasses.dataclass(eq=False)
class Uniform(_Initializer):
    """Uniform from -`limit` to `limit`."""

    limit: float

    def _draw(self, rng, shape):
        return (2 * rng.random(shape, np.float32) - 1) * np.float32(self.limit)


@dataclasses.dataclass(eq=False)
class GlorotUniform(_Initializer):
    """Uniform up to sqrt(6 / (inputs + outputs)) of a kernel [..., inputs, outputs], each times the places before."""

    def _draw(self, rng, shape):
        limit = math.sqrt(6 / (math.prod(shape[:-2]) * (shape[-2] + shape[-1])))
        return Uniform(self.seed, limit)._draw(rng, shape)


@dataclasses.dataclass(eq=False)
class Orthogonal(_Initializer):
    """A matrix [rows, columns] whose rows, if they are fewer than its columns, are orthonormal; else its columns."""

    def _draw(self, rng, shape):
        q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
        q *= np.sign(np.diag(r))  # makes all of them equally probable
        return (q if shape[0] >= shape[1] else q.T).astype("float32")
