"""Initial weights, drawn by NumPy from a seed: every backend of Keras begins with the same bits."""

from __future__ import annotations

import dataclasses
import math

import keras
import numpy as np
from keras import ops


@dataclasses.dataclass(eq=False)
class _Initializer(keras.initializers.Initializer):
    """Base of the initializers below, which say in `_draw` what they draw from a generator: float32 of `shape`."""

    seed: int

    def __call__(self, shape, dtype=None):
        return ops.cast(self._draw(np.random.default_rng(self.seed), shape), dtype or keras.config.floatx())

    def get_config(self):
        return dataclasses.asdict(self)


@keras.saving.register_keras_serializable("bert_keras")
@dataclasses.dataclass(eq=False)
class Normal(_Initializer):
    """Normal with standard deviation `stddev`."""

    stddev: float

    def _draw(self, rng, shape):
        return rng.standard_normal(shape, np.float32) * np.float32(self.stddev)


@keras.saving.register_keras_serializable("bert_keras")
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


@keras.saving.register_keras_serializable("bert_keras")
@dataclasses.dataclass(eq=False)
class Uniform(_Initializer):
    """Uniform from -`limit` to `limit`."""

    limit: float

    def _draw(self, rng, shape):
        return (2 * rng.random(shape, np.float32) - 1) * np.float32(self.limit)


@keras.saving.register_keras_serializable("bert_keras")
@dataclasses.dataclass(eq=False)
class GlorotUniform(_Initializer):
    """Uniform up to sqrt(6 / (inputs + outputs)) of a kernel [..., inputs, outputs], each times the places before."""

    def _draw(self, rng, shape):
        limit = math.sqrt(6 / (math.prod(shape[:-2]) * (shape[-2] + shape[-1])))
        return Uniform(self.seed, limit)._draw(rng, shape)


@keras.saving.register_keras_serializable("bert_keras")
@dataclasses.dataclass(eq=False)
class Orthogonal(_Initializer):
    """A matrix [rows, columns] whose rows, if they are fewer than its columns, are orthonormal; else its columns."""

    def _draw(self, rng, shape):
        q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
        q *= np.sign(np.diag(r))  # makes all of them equally probable
        return (q if shape[0] >= shape[1] else q.T).astype("float32")
