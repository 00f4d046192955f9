"""Watches a folder of pushed versions and serves those of its policy that work.

`<base>/<integer>/saved_model.pb` is a version. A push renames a complete folder into place, so every other
name (a copy under way) is passed over.

A version's states, as TensorFlow Serving reports them:

    LOADING -> AVAILABLE -> UNLOADING -> END      swapped out; END once its last request is answered
            -> END, with the error's code         failed to load or to warm up; the old one keeps serving

TensorFlow Serving's START (seen, not yet loading) does not occur: what one thread sees, it loads.

What is loaded goes only once another version of the policy serves. So it stays while the folder is missing, as with
TensorFlow Serving (`PollFileSystemForServable` of file_system_storage_path_source.cc), and also while it is empty, or
holds none of the versions asked for; there TensorFlow Serving would unload. Of the latest N, one that fails to load is
made up for by the next older one.
"""

import gc
import logging
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grpc

from serving import errors
from serving.batching import BatchingSettings
from serving.metrics import Metrics
from serving.model_config import ModelConfig
from serving.protos import ModelVersionStatus
from serving.servable import SAVED_MODEL_FILE, Servable
from serving.warmup import warm_up

log = logging.getLogger(__name__)

_MAX_VERSION = 2**63 - 1  # model_spec.version is an int64


@dataclass(frozen=True)
class VersionStatus:
    """What GetModelStatus says of one version."""

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
    """The versions of one model, polled every `poll_seconds` by one thread once started.

    A request takes a Servable from `get` and holds it until it is answered, so a swap never pulls a model
    from under it. Whoever loads and swaps holds the lock; readers see whole dictionaries replaced, and need none.
    """

    def __init__(
        self,
        config: ModelConfig,
        poll_seconds: float = 1.0,
        batching: BatchingSettings | None = None,
        metrics: Metrics | None = None,
    ):
        self.config = config
        self._poll_seconds = poll_seconds
        self._batching = batching
        self._metrics = metrics or Metrics()
        self._available: dict[int, Servable] = {}
        self._status: dict[int, VersionStatus] = {}
        self._failed: dict[int, object] = {}  # version -> fingerprint of the files that failed
        self._garbage = False
        self._looked = False
        self._complaint = ""
        self._loading = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts to poll; returns at once."""
        self._thread = threading.Thread(target=self._run, name=f"versions-of-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops polling (a load under way is finished first) and lets the versions go."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._keep(())

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def base_path(self) -> Path:
        return self.config.base_path

    @property
    def has_looked(self) -> bool:
        """Whether it has looked for versions once, and loaded what it found."""
        return self._looked

    @property
    def newest(self) -> int | None:
        """The version that answers who asks for none; None before the first."""
        return max(self._available, default=None)

    @property
    def versions(self) -> list[int]:
        """Those that serve, oldest first."""
        return sorted(self._available)

    def get(self, version: int | None = None) -> Servable | None:
        """The servable for a request, by default the newest; None for what is not served."""
        available = self._available
        return available.get(max(available, default=-1) if version is None else version)

    def status(self) -> dict[int, VersionStatus]:
        """The state of all versions ever seen, oldest first."""
        return dict(sorted(self._status.copy().items()))

    def has_versions(self) -> bool:
        """Whether the folder holds a version now, good or bad; not if it cannot be read."""
        try:
            return bool(self._versions())
        except OSError:
            return False

    def poll(self) -> None:
        """Looks once: loads what the policy asks for, unless it serves or has failed, and lets the rest go."""
        if self._garbage:
            # A loaded model is full of reference cycles: without this, its memory stays for long.
            self._garbage = False
            gc.collect()
        with self._loading:
            try:
                policy, on_disk = self.config.policy, self._versions()
                kept: list[int] = []
                for version in policy.candidates(on_disk):
                    if len(kept) == policy.latest:
                        break
                    if version in self._available or self._load_changed(version, on_disk[version]):
                        kept.append(version)
                if kept:
                    self._keep(kept)
            finally:
                self._looked = True

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.poll()
                self._complaint = ""
            except OSError as error:
                # A folder that vanished while it was read, or is not ours to read: look again later.
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.error("looking for versions of %s in %s: %s", self.name, self.base_path, error)
            self._stop.wait(self._poll_seconds)

    def _versions(self) -> dict[int, Path]:
        if not self.base_path.is_dir():
            return {}
        names = [path for path in self.base_path.iterdir() if path.name.isascii() and path.name.isdigit()]
        return {
            int(path.name): path
            for path in names
            if int(path.name) <= _MAX_VERSION and (path / SAVED_MODEL_FILE).is_file()
        }

    def _load_changed(self, version: int, path: Path) -> bool:
        """Loads a version, unless its files are those that failed before."""
        fingerprint = _fingerprint(path)
        if self._failed.get(version) == fingerprint:
            return False
        loaded = self._load(version, path)
        if loaded:
            self._failed.pop(version, None)
        else:
            self._failed[version] = fingerprint
        return loaded

    def _load(self, version: int, path: Path) -> bool:
        self._status[version] = VersionStatus(version, "LOADING")
        try:
            with self._metrics.loading(path):
                servable = Servable(self.name, version, path, self._batching)
            with self._metrics.warming(path):
                warm_up(servable)
        except Exception as error:
            reason = errors.from_exception(error)
            self._status[version] = VersionStatus(version, "END", reason.code, str(reason))
            serving = "nothing is served" if self.newest is None else f"version {self.newest} keeps serving"
            log.error("%s version %d in %s failed to load, %s: %s", self.name, version, path, serving, reason)
            self._garbage = True
            return False
        weakref.finalize(servable, self._ended, version).atexit = False
        self._status[version] = VersionStatus(version, "AVAILABLE")
        self._available = {**self._available, version: servable}
        log.info("%s version %d is available", self.name, version)
        return True

    def _keep(self, versions: Iterable[int]) -> None:
        kept = {version: self._available[version] for version in versions}
        for version in set(self._available) - set(kept):
            self._status[version] = VersionStatus(version, "UNLOADING")
            self._garbage = True
        self._available = kept

    def _ended(self, version: int) -> None:
        # Runs wherever the last reference goes, so it takes no lock. The version may be back (a rollback).
        if self._status[version].state == "UNLOADING":
            self._status[version] = VersionStatus(version, "END")
        self._garbage = True


def _fingerprint(path: Path) -> object:
    """Changes when any file of a version does."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [(str(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]]
