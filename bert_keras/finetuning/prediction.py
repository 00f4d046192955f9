"""Prediction for features in memory. Shapes: N sequences, B sequences of a batch, T tokens."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.tasks.rows import TaskFeatures

_INPUTS = ("input_ids", "input_mask", "segment_ids")


def predict(model: keras.Model, features: TaskFeatures, batch_size: int) -> Any:
    """The model's outputs (an array or a dict of arrays), NumPy [N, ...], without dropout.

    Sequences are batched by length, and each batch is as long as its longest sequence; outputs with a token axis are 0
    beyond it.

    Raises:
        ValueError: there are no rows.
    """
    inputs = {name: features.arrays[name] for name in _INPUTS}
    rows, *_, length = inputs["input_mask"].shape
    if not rows:
        raise ValueError("there are no rows to predict")
    lengths = _lengths(inputs["input_mask"])
    # One trace for all shapes of batches.
    signature = {name: tf.TensorSpec([None] * array.ndim, tf.int32) for name, array in inputs.items()}
    call = tf.function(lambda batch: model(batch, training=False), input_signature=[signature])
    # The longest first, so that a lack of memory shows at once.
    order = np.argsort(-lengths, kind="stable")
    outputs = None
    for first in range(0, rows, batch_size):
        chosen = order[first : first + batch_size]
        # The first batch has the full length, so its outputs have the full shapes.
        longest = int(lengths[chosen[0]]) if first else length
        batch = {name: array[chosen][..., :longest] for name, array in inputs.items()}
        parts = tf.nest.map_structure(lambda value: tf.cast(value, tf.float32).numpy(), call(batch))
        if outputs is None:
            outputs = tf.nest.map_structure(lambda value: np.zeros((rows, *value.shape[1:]), np.float32), parts)
        for whole, part in zip(tf.nest.flatten(outputs), tf.nest.flatten(parts), strict=True):
            whole[(chosen, *(slice(size) for size in part.shape[1:]))] = part
    return outputs


def _lengths(mask: np.ndarray) -> np.ndarray:
    """Length of each row's longest sequence, int64 [N], at least 1; padding is on the right."""
    return np.maximum(1, mask.sum(-1).reshape(len(mask), -1).max(-1))
