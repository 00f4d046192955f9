"""Choice of the served versions: `models.config` in the serving folder, in TensorFlow Serving's format.

Without the file the newest version is served, and a newer one as soon as it is pushed. With it, the versions it names
(`serving.models.config` has an example); a request without label and version goes to the newest of them.
"""

import os

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from bert_keras.errors import InputError
from bert_keras.files import atomic_open

CONFIG_FILE = "models.config"
MODEL_NAME = "bert"
STABLE, CANARY = "stable", "canary"


def pushed_versions(folder: str) -> list[int]:
    """The versions in a serving folder, oldest first."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def read_labels(folder: str) -> dict[str, int]:
    """Read the version of each label; none if the newest version is served.

    InputError: `models.config` is damaged, or was not written by `write_labels`.
    """
    path = os.path.join(folder, CONFIG_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        server = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
        (config,) = server.model_config_list.config
    except FileNotFoundError:
        return {}
    except (text_format.ParseError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is not the configuration of one model ({reason}); fix or delete it") from error
    return dict(config.version_labels)


def write_labels(folder: str, labels: dict[str, int]) -> None:
    """Replace `models.config` atomically; without labels the newest version is served."""
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
    with atomic_open(os.path.join(folder, CONFIG_FILE)) as file:
        file.write(text_format.MessageToBytes(server))
        os.fchmod(file.fileno(), 0o644)  # a server may run as another user


def served_version(folder: str) -> int | None:
    """The version with the label `stable`, else the newest; None without versions."""
    return read_labels(folder).get(STABLE, max(pushed_versions(folder), default=None))
