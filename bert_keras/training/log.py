"""Logs of a training run: a JSON-lines file, and TensorBoard's event files."""

from __future__ import annotations

import json
import os
import time

import keras
import numpy as np
import tensorflow as tf
from tensorboard.plugins.histogram import metadata as histogram_metadata

from bert_keras.files import atomic_write_anywhere

LOG_FILE = "log.jsonl"
HISTOGRAM_BUCKETS = 30


class TrainingLog:
    """Writer of the log; drops records of a killed run after its checkpoint at `first_step`."""

    def __init__(self, directory: str, first_step: int):
        tf.io.gfile.makedirs(directory)
        path = os.path.join(directory, LOG_FILE)
        kept: list[str] = []
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                # A kill may have truncated the last line, which is then after the checkpoint.
                lines = [line for line in file if line.endswith("\n")]
            kept = [line for line in lines if json.loads(line)["step"] <= first_step]
        atomic_write_anywhere(path, "".join(kept))
        self._file = tf.io.gfile.GFile(path, "a")
        self._writers = {
            kind: tf.summary.create_file_writer(os.path.join(directory, "tensorboard", kind))
            for kind in ("train", "eval")
        }

    def write(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **metrics}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        with self._writers[kind].as_default():
            for name, value in metrics.items():
                tf.summary.scalar(name, value, step=step)
            self._writers[kind].flush()

    def write_histograms(self, step: int, model: keras.Model) -> None:
        """Write histograms of all weights of the model for TensorBoard.

        NumPy counts them: `tf.summary.histogram` needs 240 bytes per value, 6 GB for BERT-base's word embeddings.
        """
        metadata = histogram_metadata.create_summary_metadata(display_name=None, description=None)
        with self._writers["train"].as_default():
            for variable in model.trainable_variables:
                values = keras.ops.convert_to_numpy(variable)
                # The training loop reports weights that are not finite at the next step.
                counts, edges = np.histogram(values[np.isfinite(values)], HISTOGRAM_BUCKETS)
                buckets = np.stack([edges[:-1], edges[1:], counts], axis=1)  # rows: (from, to, count)
                tf.summary.write(variable.path, buckets.astype("float64"), step=step, metadata=metadata)
