"""Pushed versions, read without loading them; threads, batches, queues and memory of a server, derived from them."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from serving.deploy.settings import CannotDeploy, DeploySettings
from serving.models.servable import SAVED_MODEL_FILE
from serving.protos import SavedModel

# What TensorFlow Serving reads. The weights, configuration and vocabulary for fine-tuning beside it take as much space
# again and are not in the image.
_SERVED = (SAVED_MODEL_FILE, "fingerprint.pb", "assets", "assets.extra", "variables")
# Assumed for versions without bert_config.json: the largest common model, BERT base.
_BERT_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512}
_MAX_VERSION = 2**63 - 1  # model_spec.version is an int64
# Measured with `bert-tfx serve`, one version loaded and warmed up (docs/deploying.md, "Memory"): no measurement exceeds
# the derived memory. TensorFlow Serving was not measured; it has no Python, so it should need less.
_RUNTIME_MIB = 1408
_COPIES_OF_A_VERSION = 2
_MIB = 2**20
_ROUND_TO_MIB = 128
# Threads beyond those that predictions can occupy, so that probes and metrics are always answered.
_SPARE_THREADS = 16


class PushedVersion(NamedTuple):
    """One version in the serving folder."""

    version: int
    folder: str  # its name, which may have leading zeros
    tensorflow_version: str  # of the TensorFlow that exported it
    parts: tuple[str, ...]  # existing files and folders among `_SERVED`
    size: int  # of all of them, in bytes
    content: str  # SHA-256 of all of them, by name
    row_bytes: int  # peak memory for answering one row of a batch (`_row_bytes`)
    varying_inputs: tuple[str, ...]  # `signature/input` of inputs with an unknown dimension other than the rows


def find_versions(base: Path) -> dict[int, Path]:
    """Versions pushed to `base`, by number, without incomplete pushes; CannotDeploy if there are none."""
    names = sorted(base.iterdir()) if base.is_dir() else []
    versions = {
        int(path.name): path
        for path in names
        if path.name.isascii() and path.name.isdigit() and (path / SAVED_MODEL_FILE).is_file()
    }
    if not versions:
        raise CannotDeploy(
            f"{base} contains no version (<integer>/{SAVED_MODEL_FILE}); give the folder that models are pushed to"
        )
    if max(versions) > _MAX_VERSION:
        raise CannotDeploy(f"{versions[max(versions)]}: a version is at most {_MAX_VERSION}; rename the folder")
    return versions


def read_version(version: int, path: Path) -> PushedVersion:
    """Read one version; CannotDeploy if one of its files cannot be read."""
    try:
        graph = SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes()).meta_graphs[0]
        row_bytes = _row_bytes(path / "bert_config.json")
    except (DecodeError, IndexError, OSError, ValueError, TypeError) as error:
        raise CannotDeploy(f"{path}: not a version that can be served ({error}); push it again") from error
    parts = tuple(name for name in _SERVED if (path / name).exists())
    served = sorted(file for name in parts for file in (path / name, *(path / name).rglob("*")) if file.is_file())
    content = hashlib.sha256()
    for file in served:
        content.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            content.update(hashlib.file_digest(opened, "sha256").digest())
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
        parts=parts,
        size=sum(file.stat().st_size for file in served),
        content=content.hexdigest(),
        row_bytes=row_bytes,
        varying_inputs=tuple(sorted(varying)),
    )


def _row_bytes(config_file: Path) -> int:
    """Memory of one row of maximum length, float32, in the layer that needs most."""
    config = json.loads(config_file.read_text()) if config_file.is_file() else {}
    hidden, heads, inner, tokens = (int(config.get(name, usual)) for name, usual in _BERT_BASE.items())
    # Scores and softmax, [A, T, T] each, queries, keys, values and the layer's input, [T, H] each; or before and after
    # activation, [T, I] each, input and output.
    attention = 2 * heads * tokens * tokens + 4 * tokens * hidden
    feed_forward = 2 * tokens * inner + 2 * tokens * hidden
    return 4 * max(attention, feed_forward)


class Sizing(NamedTuple):
    """Derived numbers of one server; each core computes a batch, and as many full batches wait in the queue."""

    batching: bool
    batch_sizes: tuple[int, ...]  # that batches are padded to
    request_threads: int  # maximum number of concurrent requests, for gRPC and REST each
    memory_mib: int


def sizing_of(settings: DeploySettings, versions: Sequence[PushedVersion]) -> Sizing:
    """Derive the sizing of a server with `versions` loaded.

    A request blocks its thread until its batch is answered. So batches fill up only with as many threads as rows
    (TensorFlow Serving's default of 4 per core would limit batches to 4 rows per core). Probes are answered only if
    requests cannot occupy all threads: those for running and queued rows of every version, plus spare ones.

    The memory is for the runtime, all versions, and the activations of a batch a core of the largest version. For a
    MiniLM (6 layers of 384, 94 MiB) with 2 cores and 32 rows: 3,328 MiB.
    """
    varying = [name for version in versions for name in version.varying_inputs]
    batching = settings.merge_requests if settings.merge_requests is not None else not varying
    rows = settings.cpus * settings.max_batch_size
    models = _COPIES_OF_A_VERSION * sum(version.size for version in versions)
    activations = rows * max(version.row_bytes for version in versions)
    mib = _RUNTIME_MIB + (models + activations) / _MIB
    return Sizing(
        batching=batching,
        batch_sizes=batch_sizes(settings.max_batch_size),
        request_threads=(rows * (1 + len(versions)) if batching else 4 * settings.cpus) + _SPARE_THREADS,
        memory_mib=settings.memory_mib or -int(-mib // _ROUND_TO_MIB) * _ROUND_TO_MIB,
    )


def batch_sizes(most: int) -> tuple[int, ...]:
    """Powers of two and the numbers half-way between them, up to `most`, which is the last.

    >>> batch_sizes(32)
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    """
    steps = sorted({step for power in range(most.bit_length()) for step in (2**power, 3 * 2**power // 2)})
    return (*(step for step in steps if step < most), most)
