"""What a training run writes down: a JSON-lines file, and TensorBoard's event files."""

from __future__ import annotations

import json
import os
import time

import keras
import numpy as np
import tensorflow as tf
from tensorboard.plugins.histogram import metadata as histogram_metadata

LOG_FILE = "log.jsonl"
HISTOGRAM_BUCKETS = 30


class TrainingLog:
    """What a killed run logged past its checkpoint, at `first_step`, is dropped."""

    def __init__(self, directory: str, first_step: int):
        tf.io.gfile.makedirs(directory)
        path = os.path.join(directory, LOG_FILE)
        kept: list[str] = []
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                # A kill may have cut the last line short; it is past the checkpoint then.
                lines = [line for line in file if line.endswith("\n")]
            kept = [line for line in lines if json.loads(line)["step"] <= first_step]
        with tf.io.gfile.GFile(path + ".part", "w") as file:
            file.write("".join(kept))
        tf.io.gfile.rename(path + ".part", path, overwrite=True)
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
        """The values of every weight of the model, for TensorBoard.

        Counted by NumPy, in blocks: `tf.summary.histogram` takes 240 bytes a value, of BERT-base's vocabulary 6 GB.
        """
        metadata = histogram_metadata.create_summary_metadata(display_name=None, description=None)
        with self._writers["train"].as_default():
            for variable in model.trainable_variables:
                values = keras.ops.convert_to_numpy(variable)
                # A weight that overflows is for the training loop to tell, at the next step.
                counts, edges = np.histogram(values[np.isfinite(values)], HISTOGRAM_BUCKETS)
                buckets = np.stack([edges[:-1], edges[1:], counts], axis=1)  # of each: from, to, how many
                tf.summary.write(variable.path, buckets.astype("float64"), step=step, metadata=metadata)
