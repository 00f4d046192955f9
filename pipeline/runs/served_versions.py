"""Choice of the served versions: `models.config` in the serving folder, in TensorFlow Serving's format.

Without the file the newest version is served, and a newer one as soon as it is pushed. With it, the versions it names:

    model_config_list {
      config {
        name: "bert"
        base_path: "/runs/demo/serving"
        model_platform: "tensorflow"
        model_version_policy { specific { versions: 1767323045 versions: 1767409445 } }
        version_labels { key: "canary" value: 1767409445 }
        version_labels { key: "stable" value: 1767323045 }
      }
    }

A request without label and version goes to the newest loaded version, here the canary.

A comment in its first line, which TensorFlow Serving ignores, records the history of stable versions for `bert-tfx
models rollback`; it is written together with the labels, in one rename.

    # stable so far, for `bert-tfx models rollback`: 1767236645 1767323045
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from bert_keras.errors import InputError
from bert_keras.files import atomic_write
from pipeline.runs.run_dir import serving_dir

CONFIG_FILE = "models.config"
MODEL_NAME = "bert"
STABLE, CANARY = "stable", "canary"
_HISTORY = "# stable so far, for `bert-tfx models rollback`:"
_LONGEST_HISTORY = 100


def pushed_versions(folder: str) -> list[int]:
    """The versions in a serving folder, oldest first."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def read_labels(folder: str) -> dict[str, int]:
    """Read the version of each label; none if the newest version is served.

    InputError: `models.config` is damaged, or was not written by `write_labels`.
    """
    return _read(folder)[0]


def _read(folder: str) -> tuple[dict[str, int], list[int]]:
    """The labels, and the recorded history."""
    path = os.path.join(folder, CONFIG_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        server = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
        (config,) = server.model_config_list.config
    except FileNotFoundError:
        return {}, []
    except (text_format.ParseError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is not the configuration of one model ({reason}); fix or delete it") from error
    recorded = re.search(rf"^{re.escape(_HISTORY)}([ 0-9]*)$", text, re.MULTILINE)
    return dict(config.version_labels), [int(version) for version in recorded[1].split()] if recorded else []


def history(folder: str) -> list[int]:
    """The versions served as stable, in order; the last is the current one. InputError as for `read_labels`.

    While the newest version is served, each pushed version has been the current one in turn.
    """
    labels, recorded = _read(folder)
    if STABLE in labels:
        return recorded if recorded[-1:] == [labels[STABLE]] else [*recorded, labels[STABLE]]
    newest = recorded[-1] if recorded else -1
    return recorded + [version for version in pushed_versions(folder) if version > newest]


def write_labels(folder: str, labels: dict[str, int], stable_so_far: Sequence[int] = ()) -> None:
    """Replace `models.config` atomically; without labels the newest version is served.

    `stable_so_far` is the new `history`, which ends with the version to serve.
    """
    server = model_server_config_pb2.ModelServerConfig()
    config = server.model_config_list.config.add(
        name=MODEL_NAME, base_path=os.path.abspath(folder), model_platform="tensorflow"
    )
    if labels:
        config.model_version_policy.specific.versions.extend(sorted(set(labels.values())))
    else:
        config.model_version_policy.latest.num_versions = 1
    for label, version in labels.items():
        config.version_labels[label] = version
    with atomic_write(os.path.join(folder, CONFIG_FILE)) as file:
        file.write(f"{_HISTORY} {' '.join(map(str, stable_so_far[-_LONGEST_HISTORY:]))}\n")
        file.write(text_format.MessageToString(server))
        os.fchmod(file.fileno(), 0o644)  # a server may run as another user


def served_version(folder: str) -> int | None:
    """The version with the label `stable`, else the newest; None without versions."""
    return read_labels(folder).get(STABLE, max(pushed_versions(folder), default=None))


def hint_at_version(error: InputError, init: str) -> InputError:
    """If the folder of an initial model is a run directory or has versions, name the served one in the message."""
    for folder in (serving_dir(init), init):
        version = served_version(folder)
        if version is not None:
            model = os.path.join(folder, str(version))
            return InputError(f"--init {init}: is a folder of several versions, not a model; give --init {model}")
    return error
