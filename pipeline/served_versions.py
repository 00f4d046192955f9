"""Which pushed versions are served: `models.config` in the serving folder, as TensorFlow Serving reads it.

Without the file the newest version is served, and a newer one as soon as it is pushed. With it, those that it names:

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

A request that names neither a label nor a version goes to the newest that is loaded, here the canary.
"""

from __future__ import annotations

import os
import tempfile

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from bert_keras.errors import InputError

CONFIG_FILE = "models.config"
MODEL_NAME = "bert"
STABLE, CANARY = "stable", "canary"


def pushed_versions(folder: str) -> list[int]:
    """The versions in a serving folder, oldest first."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def read_labels(folder: str) -> dict[str, int]:
    """The version of each label; none where the newest version is served, whichever it is.

    Raises:
        InputError: `models.config` is damaged, or not one that `write_labels` wrote.
    """
    path = os.path.join(folder, CONFIG_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            server = text_format.Parse(file.read(), model_server_config_pb2.ModelServerConfig())
        (config,) = server.model_config_list.config
    except FileNotFoundError:
        return {}
    except (text_format.ParseError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is not the configuration of one model ({reason}); mend it, or delete it") from error
    return dict(config.version_labels)


def write_labels(folder: str, labels: dict[str, int]) -> None:
    """Replaces `models.config`, whole or not at all: the labelled versions are served, or without any the newest."""
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
    # Inside the folder, so that the rename stays on one file system; the name is no version's.
    handle, temporary = tempfile.mkstemp(prefix=f".{CONFIG_FILE}-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text_format.MessageToString(server))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # a server may run as somebody else
        os.replace(temporary, os.path.join(folder, CONFIG_FILE))
    except BaseException:
        os.remove(temporary)
        raise


def served_version(folder: str) -> int | None:
    """The version that `stable` names, or else the newest; None if there is none."""
    return read_labels(folder).get(STABLE, max(pushed_versions(folder), default=None))
