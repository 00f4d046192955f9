"""Prediction for features in memory. Shapes: N sequences, B sequences of a batch, T tokens."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from bert_keras.tasks.rows import TaskFeatures
from bert_keras.tasks.sequences import joined, like_lengths

_INPUTS = ("input_ids", "input_mask", "segment_ids")


def predict(model: keras.Model, features: TaskFeatures, batch_size: int) -> Any:
    """The model's outputs (an array or a dict of arrays), NumPy [N, ...], without dropout.

    Sequences are batched by length, and each batch is as long as its longest sequence; outputs with a token axis are 0
    beyond it.

    Raises:
        ValueError: there are no rows.
    """
    inputs = {name: features.arrays[name] for name in _INPUTS}
    if not len(inputs["input_mask"]):
        raise ValueError("there are no rows to predict")
    # One trace for all shapes of batches.
    signature = {name: tf.TensorSpec([None] * array.ndim, tf.int32) for name, array in inputs.items()}
    call = tf.function(lambda batch: model(batch, training=False), input_signature=[signature])
    # The longest first, so that a lack of memory shows at once.
    calls = like_lengths(inputs["input_mask"], rows=batch_size)
    parts = [
        tf.nest.map_structure(
            lambda value: tf.cast(value, tf.float32).numpy(),
            call({name: array[rows, ..., :length] for name, array in inputs.items()}),
        )
        for rows, length in calls
    ]
    return tf.nest.map_structure(lambda *outputs: joined(outputs, calls), *parts)
