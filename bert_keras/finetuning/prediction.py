"""Prediction for features in memory. Shapes: N sequences, B sequences of a batch, T tokens."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.tasks.rows import TaskFeatures
from bert_keras.tasks.sequences import joined, like_lengths

_INPUTS = ("input_ids", "input_mask", "segment_ids")


def compiled(model: keras.Model, features: TaskFeatures) -> Callable[[dict[str, np.ndarray]], Any]:
    """The model without dropout, as one graph for batches of all shapes, which its first call makes."""
    ranks = {name: features.arrays[name].ndim for name in _INPUTS}
    signature = {name: tf.TensorSpec([None] * rank, tf.int32) for name, rank in ranks.items()}
    return tf.function(lambda batch: model(batch, training=False), input_signature=[signature], autograph=False)


def predict(model: keras.Model, features: TaskFeatures, batch_size: int, call: Callable[..., Any] | None = None) -> Any:
    """The model's outputs (an array or a dict of arrays), NumPy [N, ...], without dropout; ValueError without rows.

    Sequences are batched by length, and each batch is as long as its longest sequence; outputs with a token axis are 0
    beyond it. `call` is the model `compiled`, if it is by now.
    """
    inputs = {name: features.arrays[name] for name in _INPUTS}
    if not len(inputs["input_mask"]):
        raise ValueError("there are no rows to predict")
    call = call or compiled(model, features)
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
