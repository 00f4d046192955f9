"""A training run's folder: where it lies, by what it depends on, and what of it goes with the model."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_keras.training_log import LOG_FILE


def run_folder(root: str, settings: dict[str, Any], patterns: Sequence[str]) -> str:
    """`ROOT/HASH`, of all that a training depends on: a killed run finds it again, another recipe or data never do.

    Args:
        root: the folder of all runs.
        settings: as JSON can say them.
        patterns: of the files that are read, whose names and contents count.
    """
    inputs = {**settings, "examples": [_digest(pattern) for pattern in patterns]}
    return os.path.join(root, hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16])


def _digest(pattern: str) -> str:
    """A hash of the files' names and contents."""
    digest = hashlib.sha256()
    for path in sorted(tf.io.gfile.glob(pattern)):
        if tf.io.gfile.isdir(path):
            continue
        digest.update(os.path.basename(path).encode())
        with tf.io.gfile.GFile(path, "rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


def copy_logs(source: str, target: str) -> None:
    """The curves, into the Trainer's `model_run` artifact (`log.jsonl` and TensorBoard's event files)."""
    tf.io.gfile.makedirs(target)
    tf.io.gfile.copy(os.path.join(source, LOG_FILE), os.path.join(target, LOG_FILE), overwrite=True)
    for folder, _, names in tf.io.gfile.walk(os.path.join(source, "tensorboard")):
        copied = os.path.join(target, os.path.relpath(folder, source))
        tf.io.gfile.makedirs(copied)
        for name in names:
            tf.io.gfile.copy(os.path.join(folder, name), os.path.join(copied, name), overwrite=True)
