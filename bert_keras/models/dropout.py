"""Dropout from a counter-based hash, in `keras.ops` only: equal masks on every backend, at low cost.

A BERT draws more random numbers than it has activations: 18 million in a step of the mini size at 32 rows of 128. On
a CPU they take 13 % of its time with Philox, more with Threefry (JAX).
"""

from __future__ import annotations

import math

import keras
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


def _hash(x):
    x = (x ^ ops.right_shift(x, _uint32(16))) * _uint32(0x7FEB352D)
    # The original's last xor-shift is omitted: it changes only the low half.
    return (x ^ ops.right_shift(x, _uint32(15))) * _uint32(0x846CA68B)


def _uint32(value: int):
    return ops.convert_to_tensor(value, dtype="uint32")
