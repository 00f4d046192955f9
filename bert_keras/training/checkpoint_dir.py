"""The folder of a training run: its name, derived from all inputs, and the logs copied to the model's artifact."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from bert_keras.files import atomic_write_anywhere, files_below, files_in
from bert_keras.training.config import BUDGET_FILE
from bert_keras.training.log import LOG_FILE

SETTINGS_FILE = "settings.json"
_MAX_CHANGES = 8  # printed of a new run


def run_folder(root: str, settings: Mapping[str, Any], inputs: Sequence[str]) -> str:
    """`ROOT/HASH`, a hash of all settings and input files: a killed run finds its folder, another training does not."""
    hashed = {**settings, "examples": [digest_of(path) for path in inputs]}
    return os.path.join(root, hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16])


def digest_of(path: str) -> str:
    """Hash of the content of a file, or of the names and contents of all files below a folder."""
    if not epath.Path(path).is_dir():
        digest = hashlib.sha256()
        with epath.Path(path).open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
        return digest.hexdigest()
    files = sorted(files_below(path))
    return hashlib.sha256(
        json.dumps([[os.path.relpath(file, path), digest_of(file)] for file in files]).encode()
    ).hexdigest()


def tell_what_changed(folder: str, settings: Mapping[str, Any]) -> None:
    """Record the settings of a new run; print the differences to the most similar earlier run in the same root.

    Otherwise a training that starts from step 0 because of a changed setting seems to have lost its checkpoints.
    """
    path = os.path.join(folder, SETTINGS_FILE)
    if epath.Path(path).exists():
        return
    current, differences = _flat(settings), {}
    for earlier in files_in(os.path.dirname(folder)):
        file = epath.Path(earlier) / SETTINGS_FILE
        if not file.exists():
            continue
        previous = _flat(json.loads(file.read_text()))
        differences[earlier] = [
            "the code" if name == "code" else f"{name} was {previous.get(name)}, is {current.get(name)}"
            for name in sorted({*current, *previous})
            if current.get(name) != previous.get(name)
        ]
    if differences:
        nearest = min(differences, key=lambda run: len(differences[run]))
        changes = differences[nearest] or ["the input files"]
        more = [f"and {len(changes) - _MAX_CHANGES} more, in {SETTINGS_FILE}"] if len(changes) > _MAX_CHANGES else []
        changed = "; ".join(changes[:_MAX_CHANGES] + more)
        print(f"training starts at step 0, not from {nearest}; changed since: {changed}", flush=True)
    atomic_write_anywhere(path, json.dumps(settings, indent=2, sort_keys=True) + "\n")


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten {"training": {"seed": 1}} to {"training.seed": 1}, after a round trip through JSON."""
    flat: dict[str, Any] = {}
    for name, value in json.loads(json.dumps(settings)).items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def copy_logs(source: str, target: str) -> None:
    """Copy the curves into the Trainer's `model_run` artifact (`log.jsonl`, TensorBoard's event files, the budget)."""
    files = [os.path.join(source, LOG_FILE), *files_below(os.path.join(source, "tensorboard"))]
    if epath.Path(source, BUDGET_FILE).exists():
        files.append(os.path.join(source, BUDGET_FILE))
    for file in files:
        copied = epath.Path(target, os.path.relpath(file, source))
        copied.parent.mkdir(parents=True, exist_ok=True)
        epath.Path(file).copy(copied, overwrite=True)
