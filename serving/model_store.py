"""Watches a folder of pushed versions and serves the newest one that works.

`<base>/<integer>/saved_model.pb` is a version. A push renames a complete folder into place, so every other
name (a copy under way) is passed over.

A version's states, as TensorFlow Serving reports them:

    LOADING -> AVAILABLE -> UNLOADING -> END      swapped out; END once its last request is answered
            -> END, with the error's code         failed to load or to warm up; the old one keeps serving

TensorFlow Serving's START (seen, not yet loading) does not occur: what one thread sees, it loads.
"""

import gc
import logging
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

import grpc

from serving import errors
from serving.metrics import Metrics
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
    """The versions of one model under `base_path`, polled every `poll_seconds` by one thread once started.

    A request takes a Servable from `get` and holds it until it is answered, so a swap never pulls a model
    from under it. Only the polling thread loads and swaps; readers see whole dictionaries replaced, and need
    no lock.
    """

    def __init__(self, name: str, base_path: str | Path, poll_seconds: float = 1.0, metrics: Metrics | None = None):
        self.name = name
        self.base_path = Path(base_path)
        self._poll_seconds = poll_seconds
        self._metrics = metrics or Metrics()
        self._available: dict[int, Servable] = {}
        self._status: dict[int, VersionStatus] = {}
        self._failed: dict[int, object] = {}  # version -> fingerprint of the files that failed
        self._garbage = False
        self._complaint = ""
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
        self._swap({})

    @property
    def newest(self) -> int | None:
        """The version that serves now; None before the first."""
        return max(self._available, default=None)

    def get(self, name: str, version: int | None = None) -> Servable:
        """The servable for a request, by default the newest; NOT_FOUND for what is not served."""
        available = self._available
        wanted = max(available, default=None) if version is None else version
        if name != self.name or wanted not in available:
            # The first sentence is TensorFlow Serving's own: clients look for it.
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            served = ", ".join(f"{self.name} version {one}" for one in sorted(available)) or "nothing yet"
            raise errors.not_found(f"Servable not found for request: {request}; served: {served}")
        return available[wanted]

    def status(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """The state of one version, or of all ever seen, oldest first; NOT_FOUND where there is none."""
        found = sorted(self._status.copy().values(), key=lambda status: status.version)
        if name != self.name or not found:
            raise errors.not_found(f"Could not find any versions of model {name}")
        if version is None:
            return found
        if version not in self._status:
            raise errors.not_found(f"Could not find version {version} of model {name}")
        return [self._status[version]]

    def has_versions(self) -> bool:
        """Whether the folder holds a version now, good or bad; not if it cannot be read."""
        try:
            return bool(self._versions())
        except OSError:
            return False

    def poll(self) -> None:
        """Looks once: loads the newest version that has not already failed, unless it serves."""
        if self._garbage:
            # A loaded model is full of reference cycles: without this, its memory stays for long.
            self._garbage = False
            gc.collect()
        for version, path in sorted(self._versions().items(), reverse=True):
            if version in self._available:
                return
            fingerprint = _fingerprint(path)
            if self._failed.get(version) == fingerprint:
                continue
            if self._load(version, path):
                self._failed.pop(version, None)
                return
            self._failed[version] = fingerprint

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

    def _load(self, version: int, path: Path) -> bool:
        self._status[version] = VersionStatus(version, "LOADING")
        try:
            with self._metrics.loading(path):
                servable = Servable(self.name, version, path)
            with self._metrics.warming(path):
                warm_up(servable)
        except Exception as error:
            reason = errors.from_exception(error)
            self._status[version] = VersionStatus(version, "END", reason.code, str(reason))
            serving = "nothing is served" if self.newest is None else f"version {self.newest} keeps serving"
            log.error("%s version %d in %s failed to load, %s: %s", self.name, version, path, serving, reason)
            return False
        weakref.finalize(servable, self._ended, version).atexit = False
        self._status[version] = VersionStatus(version, "AVAILABLE")
        self._swap({version: servable})
        log.info("%s version %d is available", self.name, version)
        return True

    def _swap(self, available: dict[int, Servable]) -> None:
        for version in set(self._available) - set(available):
            self._status[version] = VersionStatus(version, "UNLOADING")
            self._garbage = True
        self._available = available

    def _ended(self, version: int) -> None:
        # Runs wherever the last reference goes, so it takes no lock. The version may be back (a rollback).
        if self._status[version].state == "UNLOADING":
            self._status[version] = VersionStatus(version, "END")
        self._garbage = True


def _fingerprint(path: Path) -> object:
    """Changes when any file of a version does."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [(str(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]]
