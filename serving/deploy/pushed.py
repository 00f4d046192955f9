"""What a deployment needs to know of a pushed version, read without loading it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from serving.deploy.errors import CannotDeploy
from serving.protos import SavedModel
from serving.servable import SAVED_MODEL_FILE

# What TensorFlow Serving reads of a version. Beside it lie weights, configuration and vocabulary for fine-tuning: they
# are as large again, and stay out of the image.
_SERVED_FILES = (SAVED_MODEL_FILE, "fingerprint.pb")
_SERVED_FOLDERS = ("assets", "assets.extra", "variables")
_CONFIG_FILE = "bert_config.json"
# Of a version without bert_config.json the memory of a row is taken to be that of the largest usual model, BERT base.
_BERT_BASE = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
_MAX_VERSION = 2**63 - 1  # model_spec.version is an int64


@dataclass(frozen=True)
class PushedVersion:
    """One version below the serving folder.

    Attributes:
        version: its number.
        folder: its name, which may have leading zeros.
        tensorflow_version: of the TensorFlow that exported it.
        files: those of `_SERVED_FILES` that it has.
        folders: those of `_SERVED_FOLDERS` that it has.
        size: of all of them, in bytes.
        row_bytes: the most memory that a row of a batch takes while it is answered (`_row_bytes`).
        varying_inputs: `signature/input` of the inputs with a dimension, other than the rows, that a request chooses.
    """

    version: int
    folder: str
    tensorflow_version: str
    files: tuple[str, ...]
    folders: tuple[str, ...]
    size: int
    row_bytes: int
    varying_inputs: tuple[str, ...]


def find_versions(base: Path) -> dict[int, Path]:
    """The versions that were pushed into `base`, by number; what is no version, a push under way too, is passed over.

    Raises:
        CannotDeploy: there are none.
    """
    names = sorted(base.iterdir()) if base.is_dir() else []
    versions = {
        int(path.name): path
        for path in names
        if path.name.isascii() and path.name.isdigit() and (path / SAVED_MODEL_FILE).is_file()
    }
    if not versions:
        raise CannotDeploy(
            f"{base}: no version in it (<integer>/{SAVED_MODEL_FILE}); give the folder that models are pushed to"
        )
    if max(versions) > _MAX_VERSION:
        raise CannotDeploy(f"{versions[max(versions)]}: a version is at most {_MAX_VERSION}; rename the folder")
    return versions


def read_version(version: int, path: Path) -> PushedVersion:
    """Reads one version.

    Raises:
        CannotDeploy: a file of it cannot be read.
    """
    saved_model = SavedModel()
    try:
        saved_model.ParseFromString((path / SAVED_MODEL_FILE).read_bytes())
        graph = saved_model.meta_graphs[0]
        row_bytes = _row_bytes(_architecture(path / _CONFIG_FILE))
    except (DecodeError, IndexError, OSError, ValueError, TypeError) as error:
        raise CannotDeploy(f"{path}: not a version that can be served ({error}); push it again") from error
    files = tuple(name for name in _SERVED_FILES if (path / name).is_file())
    folders = tuple(name for name in _SERVED_FOLDERS if (path / name).is_dir())
    served = [path / name for name in files]
    served += [file for name in folders for file in (path / name).rglob("*") if file.is_file()]
    varying = (
        f"{signature}/{name}"
        for signature, declared in graph.signature_def.items()
        for name, info in declared.inputs.items()
        if info.tensor_shape.unknown_rank or any(dim.size < 0 for dim in info.tensor_shape.dim[1:])
    )
    return PushedVersion(
        version=version,
        folder=path.name,
        tensorflow_version=graph.meta_info_def.tensorflow_version,
        files=files,
        folders=folders,
        size=sum(file.stat().st_size for file in served),
        row_bytes=row_bytes,
        varying_inputs=tuple(sorted(varying)),
    )


def _architecture(path: Path) -> Mapping[str, int]:
    if not path.is_file():
        return _BERT_BASE
    found = json.loads(path.read_text())
    return {name: int(found.get(name, usual)) for name, usual in _BERT_BASE.items()}


def _row_bytes(of: Mapping[str, int]) -> int:
    """float32 of one row as long as can be, in the layer where most of them are alive at once.

    Either the attention (the scores and their softmax, [A, T, T] each, beside queries, keys, values and the layer's
    input, [T, H] each) or the feed-forward (before and after its activation, [T, I] each, beside input and output).
    """
    tokens, hidden = of["max_position_embeddings"], of["hidden_size"]
    attention = 2 * of["num_attention_heads"] * tokens * tokens + 4 * tokens * hidden
    feed_forward = 2 * tokens * of["intermediate_size"] + 2 * tokens * hidden
    return 4 * max(attention, feed_forward)
