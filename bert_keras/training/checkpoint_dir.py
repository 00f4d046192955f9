"""The folder of a training run: its name, derived from all inputs, and the logs copied to the model's artifact."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from rich.console import Console

from bert_keras.files import atomic_write_anywhere, files_in
from bert_keras.training.config import BUDGET_FILE
from bert_keras.training.log import LOG_FILE

SETTINGS_FILE = "settings.json"


def run_folder(root: str, settings: Mapping[str, Any], inputs: Sequence[str]) -> str:
    """`ROOT/HASH`, a hash of all inputs of a training: a killed run finds its folder, other settings or data do not.

    Args:
        root: the folder of all runs.
        settings: JSON-serialisable settings.
        inputs: the input files and folders.
    """
    hashed = {**settings, "examples": [digest_of(path) for path in inputs]}
    return os.path.join(root, hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16])


def digest_of(path: str) -> str:
    """Hash of the content of a file, or of the names and contents of all files below a folder.

    Raises:
        tf.errors.NotFoundError: there is no such file or folder.
    """
    if not tf.io.gfile.isdir(path):
        digest = hashlib.sha256()
        with tf.io.gfile.GFile(path, "rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
        return digest.hexdigest()
    files = sorted(os.path.join(folder, name) for folder, _, names in tf.io.gfile.walk(path) for name in names)
    return hashlib.sha256(
        json.dumps([[os.path.relpath(file, path), digest_of(file)] for file in files]).encode()
    ).hexdigest()


def tell_what_changed(folder: str, settings: Mapping[str, Any]) -> None:
    """Record the settings of a new run; print the differences to the most similar earlier run in the same root.

    Otherwise a training that starts from step 0 because of a changed setting seems to have lost its checkpoints.

    Args:
        folder: folder of the run (`run_folder`).
        settings: the settings passed to `run_folder`.
    """
    path = os.path.join(folder, SETTINGS_FILE)
    if tf.io.gfile.exists(path):
        return
    current, differences = _flat(settings), {}
    for earlier in files_in(os.path.dirname(folder)):
        if not tf.io.gfile.exists(os.path.join(earlier, SETTINGS_FILE)):
            continue
        with tf.io.gfile.GFile(os.path.join(earlier, SETTINGS_FILE)) as file:
            previous = _flat(json.load(file))
        differences[earlier] = [
            "the code" if name == "code" else f"{name} was {previous.get(name)}, is {current.get(name)}"
            for name in sorted({*current, *previous})
            if current.get(name) != previous.get(name)
        ]
    if differences:
        nearest = min(differences, key=lambda run: len(differences[run]))
        changed = "; ".join(differences[nearest] or ["the input files"])
        Console(highlight=False, soft_wrap=True).print(
            f"training starts at step 0, not from {nearest}; changed since: {changed}", markup=False
        )
    tf.io.gfile.makedirs(folder)
    atomic_write_anywhere(path, json.dumps(settings, indent=2, sort_keys=True) + "\n")


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten {"training": {"seed": 1}} to {"training.seed": 1}, after a round trip through JSON."""
    flat: dict[str, Any] = {}
    for name, value in json.loads(json.dumps(settings)).items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def copy_logs(source: str, target: str) -> None:
    """Copy the curves into the Trainer's `model_run` artifact (`log.jsonl`, TensorBoard's event files, the budget)."""
    tf.io.gfile.makedirs(target)
    tf.io.gfile.copy(os.path.join(source, LOG_FILE), os.path.join(target, LOG_FILE), overwrite=True)
    if tf.io.gfile.exists(os.path.join(source, BUDGET_FILE)):
        tf.io.gfile.copy(os.path.join(source, BUDGET_FILE), os.path.join(target, BUDGET_FILE), overwrite=True)
    for folder, _, names in tf.io.gfile.walk(os.path.join(source, "tensorboard")):
        copied = os.path.join(target, os.path.relpath(folder, source))
        tf.io.gfile.makedirs(copied)
        for name in names:
            tf.io.gfile.copy(os.path.join(folder, name), os.path.join(copied, name), overwrite=True)
