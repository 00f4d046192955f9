"""Watches the folder of a model and serves the versions selected by its policy.

`<base>/<integer>/saved_model.pb` is a version. A push renames a complete folder into place, so all other names (e.g. a
copy in progress) are ignored.

States of a version, as TensorFlow Serving reports them:

    LOADING -> AVAILABLE -> UNLOADING -> END      replaced; END after its last request is answered
            -> END, with an error code            failed to load or to warm up; the old version keeps serving

TensorFlow Serving's START (seen, not yet loading) does not occur: one thread finds and loads versions.

A version is unloaded only after another version of the policy is available. So it stays while the folder is missing, as
in TensorFlow Serving (`PollFileSystemForServable` of file_system_storage_path_source.cc), and also while the folder is
empty or holds none of the selected versions, where TensorFlow Serving would unload. If one of the latest N versions
fails to load, the next older one is served in its place.
"""

import contextlib
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import grpc

from serving import errors, tensors
from serving.models.config import ModelConfig, VersionPolicy
from serving.models.servable import SAVED_MODEL_FILE, GraphServable, Servable
from serving.protos import ModelVersionStatus, PredictionLog
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.repeat import repeat

log = logging.getLogger(__name__)

_MAX_VERSION = 2**63 - 1  # model_spec.version is an int64

# The file that makes a folder a version of an engine -> what loads it, from name, version, folder and batching.
Engines: TypeAlias = Mapping[str, Callable[[str, int, Path, BatchingSettings | None], Servable]]
TENSORFLOW: Engines = {SAVED_MODEL_FILE: GraphServable}
# "loading" or "warm-up", the version's folder -> what measures it, as `serving.middleware.metrics` does.
Measured: TypeAlias = Callable[[str, Path], contextlib.AbstractContextManager[None]]
WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


class VersionStatus(NamedTuple):
    """State of one version, as in GetModelStatus."""

    version: int
    state: str  # LOADING, AVAILABLE, UNLOADING or END
    error_code: grpc.StatusCode = grpc.StatusCode.OK
    error_message: str = ""

    def to_proto(self) -> ModelVersionStatus:
        proto = ModelVersionStatus(version=self.version, state=ModelVersionStatus.State.Value(self.state))
        proto.status.error_code = self.error_code.value[0]
        proto.status.error_message = self.error_message
        return proto


class ModelStore:
    """Versions of one model. Once started, a thread polls the folder every `poll_seconds`.

    A version is loaded by the first of `engines` whose file it has. A request holds the Servable from `get` until it is
    answered, so a version in use is never unloaded. Loading and swapping hold the lock; dictionaries are replaced as a
    whole, so readers need none.
    """

    def __init__(
        self,
        config: ModelConfig,
        poll_seconds: float = 1.0,
        batching: BatchingSettings | None = None,
        measured: Measured = lambda *_: contextlib.nullcontext(),
        engines: Engines = TENSORFLOW,
    ):
        self.config = config
        self._poll_seconds, self._batching, self._measured, self._engines = poll_seconds, batching, measured, engines
        self._available: dict[int, Servable] = {}
        self._status: dict[int, VersionStatus] = {}
        self._failed: dict[int, object] = {}  # version -> fingerprint of its files when it failed
        self._garbage = False
        self.has_looked = False  # whether the first poll has finished, including its loads
        self._complaint = ""
        self._loading = threading.Lock()
        self._end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start to poll; returns at once."""
        self._end = repeat(f"versions-of-{self.name}", self._poll_seconds, self._look)

    def stop(self) -> None:
        """Stop polling, after a load in progress has finished, and unload all versions."""
        self._end()
        self._show({})

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def base_path(self) -> Path:
        return self.config.base_path

    @property
    def newest(self) -> int | None:
        """Default version for requests; None before the first is available."""
        return max(self._available, default=None)

    @property
    def versions(self) -> list[int]:
        """Available versions, oldest first."""
        return sorted(self._available)

    def get(self, version: int | None = None) -> Servable | None:
        """Servable for a request, by default the newest; None if the version is not available."""
        available = self._available
        return available.get(max(available, default=-1) if version is None else version)

    def status(self) -> dict[int, VersionStatus]:
        """States of all versions ever seen, oldest first."""
        return dict(sorted(self._status.copy().items()))

    def has_versions(self) -> bool:
        """Return whether the folder holds a version now, valid or not; False if it cannot be read."""
        try:
            return bool(self._versions())
        except OSError:
            return False

    def poll(self) -> None:
        """Poll once: load the versions of the policy that are neither available nor failed, and unload the others."""
        if self._garbage:
            # A loaded model is full of reference cycles: without this, its memory is freed late.
            self._garbage = False
            gc.collect()
        with self._loading:
            try:
                kept = {}
                for version, servable in self._select(self.config.policy, early=not self._available):
                    kept[version] = servable
                    self._show({**self._available, version: servable})
                if kept:
                    self._show(kept)
            finally:
                self.has_looked = True

    def prepare(self, config: ModelConfig) -> dict[int, Servable]:
        """Load the versions of `config` that are not available yet, invisible to requests; {} if there are none.

        `commit` makes the returned versions available, `abandon` drops them.
        """
        with self._loading:
            try:
                kept = dict(self._select(config.policy))
            except OSError as error:
                log.error("looking for versions of %s in %s: %s", self.name, self.base_path, error)
                return {}
            if not kept:  # the folder is missing for now: keep the available versions that `config` selects
                available = self._available
                versions = config.policy.candidates(available)[: config.policy.latest]
                kept = {version: available[version] for version in versions}
            return kept

    def commit(self, config: ModelConfig, kept: Mapping[int, Servable]) -> None:
        """Make the versions that `prepare` returned available, and no others; `config` applies from now on."""
        with self._loading:
            self.config = config
            self.has_looked = True
            if kept:
                self._show(kept)

    def abandon(self, kept: Mapping[int, Servable]) -> None:
        """Drop the versions that `prepare` loaded."""
        with self._loading:
            for version in set(kept) - set(self._available):
                self._status.pop(version, None)
                self._garbage = True

    def _look(self) -> None:
        try:
            self.poll()
            self._complaint = ""
        except OSError as error:
            # The folder vanished while it was read, or is not readable: check again later.
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.error("looking for versions of %s in %s: %s", self.name, self.base_path, error)

    def _versions(self) -> dict[int, Path]:
        if not self.base_path.is_dir():
            return {}
        names = [path for path in self.base_path.iterdir() if path.name.isascii() and path.name.isdigit()]
        return {int(path.name): path for path in names if int(path.name) <= _MAX_VERSION and self._files(path)}

    def _files(self, path: Path) -> list[str]:
        """The files of engines in a version's folder, the first engine's first."""
        return [name for name in self._engines if (path / name).is_file()]

    def _select(self, policy: VersionPolicy, early: bool = False) -> Iterator[tuple[int, Servable]]:
        """Versions on disk that `policy` selects, highest first, loaded. `early`: the first answers while LOADING."""
        on_disk, chosen = self._versions(), 0
        for version in policy.candidates(on_disk):
            if chosen == policy.latest:
                return
            if servable := self._available.get(version) or self._load_changed(version, on_disk[version], early):
                chosen, early = chosen + 1, False
                yield version, servable

    def _load_changed(self, version: int, path: Path, early: bool) -> Servable | None:
        files = sorted((file, file.stat()) for file in path.rglob("*") if file.is_file())
        fingerprint = [(str(file), stat.st_size, stat.st_mtime_ns) for file, stat in files]
        if self._failed.get(version) == fingerprint:
            return None
        self._failed.pop(version, None)
        if (loaded := self._load(version, path, early)) is None:
            self._failed[version] = fingerprint
        return loaded

    def _load(self, version: int, path: Path, early: bool) -> Servable | None:
        self._status[version] = VersionStatus(version, "LOADING")
        try:
            with self._measured("loading", path):
                load = self._engines[self._files(path)[0]]
                servable = load(self.name, version, path, self._batching)
            with self._measured("warm-up", path):
                for _ in _warm_up(servable):
                    if early:
                        self._available = {version: servable}
        except Exception as error:
            reason = errors.from_exception(error)
            if early:
                self._available = {}
            self._status[version] = VersionStatus(version, "END", reason.code, str(reason))
            serving = "nothing is served" if self.newest is None else f"version {self.newest} keeps serving"
            log.error("%s version %d in %s failed to load, %s: %s", self.name, version, path, serving, reason)
            self._garbage = True
            return None
        weakref.finalize(servable, self._ended, version).atexit = False
        return servable

    def _show(self, servables: Mapping[int, Servable]) -> None:
        for version in set(self._available) - set(servables):
            self._status[version] = VersionStatus(version, "UNLOADING")
            self._garbage = True
        for version in servables:
            if self._status[version].state != "AVAILABLE":
                self._status[version] = VersionStatus(version, "AVAILABLE")
                log.info("%s version %d is available", self.name, version)
        self._available = dict(servables)

    def _ended(self, version: int) -> None:
        # Runs in whichever thread drops the last reference, so it takes no lock. The version may be back (a rollback).
        # One that was abandoned has no status.
        if (status := self._status.get(version)) and status.state == "UNLOADING":
            self._status[version] = VersionStatus(version, "END")
        self._garbage = True


def _warm_up(servable: Servable) -> Iterator[None]:
    """Answer every Predict request recorded with a version once, as TensorFlow Serving does, and yield after each."""
    path = servable.path / WARMUP_FILE
    for record in _records(path.read_bytes() if path.is_file() else b""):
        log = PredictionLog.FromString(record)
        if log.WhichOneof("log_type") == "predict_log":
            request = log.predict_log.request
            inputs = {name: tensors.to_array(proto) for name, proto in request.inputs.items()}
            servable.predict(request.model_spec.signature_name, inputs, request.output_filter)
            yield


def _records(content: bytes) -> Iterator[bytes]:
    """Records of TFRecords (length, its checksum, record, its checksum), without TensorFlow, for other engines."""
    at = 0
    while at < len(content):
        length = int.from_bytes(content[at : at + 8], "little")
        if at + length + 16 > len(content):
            raise errors.ServingError(grpc.StatusCode.DATA_LOSS, f"{WARMUP_FILE}: truncated record at {at}")
        yield content[at + 12 : at + 12 + length]
        at += length + 16
