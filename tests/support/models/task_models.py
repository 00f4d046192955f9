"""Helpers for exported task models: rows as they are evaluated, and answers without a server."""

import tensorflow as tf

from tests.support.serving.task_client import TaskClient


def serialized(rows):
    """Rows of a task (`bert_keras.tasks.rows`) as the `evaluate` signature takes them."""
    features = [
        {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=v)) for name, v in row.to_features().items()}
        for row in rows
    ]
    return [tf.train.Example(features=tf.train.Features(feature=f)).SerializeToString() for f in features]


class InProcess(TaskClient):
    """Asks the default signature of a loaded SavedModel."""

    def __init__(self, signatures):
        self._answer = signatures["serving_default"]

    def predict(self, inputs):
        tensors = {name: tf.constant(values, tf.string) for name, values in inputs.items()}
        return {name: value.numpy() for name, value in self._answer(**tensors).items()}
