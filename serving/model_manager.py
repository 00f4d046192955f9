"""All models of a server: whom a request means, and how the list of models changes while they serve.

Labels are names for versions (`stable`, `canary`), and a part of the configuration. The rules are those of
tensorflow/serving's `ServerCore::ReloadConfig` and `UpdateModelVersionLabelMap`, in its words:

- A label is assigned to an AVAILABLE version only; with `allow_version_labels_for_unavailable_models` a new label may
  point to a version that is yet to load, but no label moves to one. So a canary takes two reloads: one loads the
  version, the next one labels it. Of a file that is read again `reload` does both.
- A label whose version has gone is NOT_FOUND, an unknown one INVALID_ARGUMENT.

It differs in three points. A refused configuration changes nothing. The first configuration may label what will be
loaded, since nothing is yet. A model whose base path changes is loaded from the new one before the old one goes.
"""

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import grpc

from serving import errors
from serving.batching import BatchingSettings
from serving.errors import ServingError
from serving.metrics import Metrics
from serving.model_config import ModelConfig, VersionPolicy, read_model_configs
from serving.model_store import ModelStore, VersionStatus
from serving.servable import Servable

log = logging.getLogger(__name__)


class Target(NamedTuple):
    """What a request asks for.

    Attributes:
        name: the model's.
        version: None for the highest that serves.
        label: "" for none; it takes the place of `version`.
    """

    name: str
    version: int | None = None
    label: str = ""


class ModelManager:
    """The models of `configs`; reading is safe from any thread, and `reload` from any, one after another.

    Args:
        configs: the models; None for those of `file`.
        file: a ModelServerConfig in text format; None if there is none. With `configs`, it rules while it exists.
        poll_seconds: how often to look for new versions.
        file_poll_seconds: how often to look whether `file` has changed (TensorFlow Serving's
            model_config_file_poll_wait_seconds); 0 for never.
        batching: of every model.
        allow_version_labels_for_unavailable_models: see above.
        metrics: where loads and warm-ups are counted.

    Raises:
        ServingError: the file is wrong, in one line.
    """

    def __init__(
        self,
        configs: Iterable[ModelConfig] | None = None,
        file: Path | None = None,
        poll_seconds: float = 1.0,
        file_poll_seconds: float = 0.0,
        batching: BatchingSettings | None = None,
        allow_version_labels_for_unavailable_models: bool = False,
        metrics: Metrics | None = None,
    ):
        self._file, self._file_content = file, b""
        self._poll_seconds, self._file_poll_seconds = poll_seconds, file_poll_seconds
        self._batching, self._metrics = batching, metrics
        self._labels_for_unavailable = allow_version_labels_for_unavailable_models
        self._without_file = None if configs is None else list(configs)
        if file is not None:
            configs = self._read_file()
        # Replaced as a whole, never changed: readers need no lock.
        self._stores = {config.name: self._store(config) for config in configs or ()}
        self._reloading = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts to load; returns at once."""
        for store in self._stores.values():
            store.start()
        if self._file is not None and self._file_poll_seconds > 0:
            self._thread = threading.Thread(target=self._watch_file, name="model-config-file", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Lets all models go; loads under way are finished first."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._reloading:
            for store in self._stores.values():
                store.stop()

    @property
    def stores(self) -> Mapping[str, ModelStore]:
        """The models by name."""
        return self._stores

    def get(self, target: Target) -> Servable:
        """The servable for a request.

        Raises:
            ServingError: NOT_FOUND for what is not served, INVALID_ARGUMENT for an unknown label, UNAVAILABLE while a
                server that has just started loads its first versions: who asks again is answered.
        """
        target = self._resolved(target)
        store = self._stores.get(target.name)
        servable = store.get(target.version) if store else None
        if servable is None:
            # The first sentence is TensorFlow Serving's own: clients look for it.
            name, version, _ = target
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            if store is not None and not store.has_looked:
                loading = f"Servable not found for request: {request}; {name} is still loading: ask again"
                raise ServingError(grpc.StatusCode.UNAVAILABLE, loading)
            serving = [f"{one.name} version {number}" for one in self._stores.values() for number in one.versions]
            raise errors.not_found(
                f"Servable not found for request: {request}; served: {', '.join(serving) or 'nothing yet'}"
            )
        return servable

    def status(self, target: Target) -> list[VersionStatus]:
        """The state of one version, or of all ever seen, oldest first; NOT_FOUND where there is none."""
        name, version, _ = self._resolved(target)
        store = self._stores.get(name)
        found = store.status() if store else {}
        if not found:
            raise errors.not_found(f"Could not find any versions of model {name}")
        if version is None:
            return list(found.values())
        if version not in found:
            raise errors.not_found(f"Could not find version {version} of model {name}")
        return [found[version]]

    def reload(self, configs: Iterable[ModelConfig] | None = None) -> None:
        """Serves `configs` and nothing else from now on; returns once their versions are loaded.

        Args:
            configs: None for what the file says now. Its labels may move to versions that are yet to load: these are
                loaded first, beside those that serve.

        Raises:
            ServingError: INVALID_ARGUMENT for a wrong file, FAILED_PRECONDITION for a label on a version that is not
                available: nothing has changed. UNKNOWN if a model has no version that loads: it is watched further,
                and all others serve.
        """
        if configs is None:
            configs = self._read_file()
            with contextlib.suppress(ServingError):  # the reload below says what is wrong
                self.reload([self._before_labels(config) for config in configs])
        with self._reloading:
            configs = list(configs)
            for config in configs:
                self._check_labels(config)
            stores = {config.name: self._updated(config) for config in configs}
            gone = [store for name, store in self._stores.items() if stores.get(name) is not store]
            self._stores = stores
            for store in gone:
                store.stop()
            missing = [name for name, store in stores.items() if store.newest is None]
            if missing:
                raise ServingError(
                    grpc.StatusCode.UNKNOWN,
                    f"{len(missing)} model(s) did not become available: {{{', '.join(map(self._why_not, missing))}}}",
                )

    def _before_labels(self, config: ModelConfig) -> ModelConfig:
        """The first of the two reloads in which a label moves to a version that is not loaded."""
        store = self._stores.get(config.name)
        if store is None or store.base_path != config.base_path:
            return dataclasses.replace(config, labels={})
        both = VersionPolicy(latest=None, specific=frozenset([*store.versions, *config.labels.values()]))
        return dataclasses.replace(config, policy=both, labels=store.config.labels)

    def _store(self, config: ModelConfig) -> ModelStore:
        return ModelStore(config, self._poll_seconds, self._batching, self._metrics)

    def _updated(self, config: ModelConfig) -> ModelStore:
        """The store of `config`, its versions loaded."""
        store = self._stores.get(config.name)
        if store is not None and store.base_path == config.base_path:
            store.config = config
            self._poll(store)
            return store
        new = self._store(config)
        self._poll(new)
        if store is not None and new.newest is None:
            log.error("%s has no version that loads in %s: it stays as it was", config.name, config.base_path)
            return store
        new.start()
        return new

    def _poll(self, store: ModelStore) -> None:
        try:
            store.poll()
        except OSError as error:
            log.error("looking for versions of %s in %s: %s", store.name, store.base_path, error)

    def _why_not(self, name: str) -> str:
        failed = [status for status in self._stores[name].status().values() if status.error_message]
        return f"{name} due to error: {failed[-1].error_message}" if failed else f"{name}: no version on disk"

    def _resolved(self, target: Target) -> Target:
        """With the version that a label stands for."""
        if not target.name:
            raise errors.invalid("ModelSpec has no name specified.")
        if not target.label:
            return target
        version = self._labels(target.name).get(target.label)
        if version is None:
            raise errors.invalid(f"Unrecognized servable version label: {target.label}")
        return Target(target.name, version)

    def _labels(self, name: str) -> Mapping[str, int]:
        store = self._stores.get(name)
        return store.config.labels if store else {}

    def _check_labels(self, config: ModelConfig) -> None:
        store = self._stores.get(config.name)
        known = self._labels(config.name)
        for label, version in config.labels.items():
            available = store is not None and version in store.versions
            may_wait = self._labels_for_unavailable and known.get(label, version) == version
            if not (available or may_wait):
                raise ServingError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {config.name},"
                    " which is not currently available for inference",
                )

    def _read_file(self) -> list[ModelConfig]:
        if self._file is None:
            raise errors.invalid("the server was started without a file of models: send a ModelConfigList")
        if self._without_file is not None and not self._file.exists():
            self._file_content = b""
            return self._without_file
        configs = read_model_configs(self._file)
        self._file_content = self._file.read_bytes()
        return configs

    def _watch_file(self) -> None:
        complaint = b""
        while not self._stop.wait(self._file_poll_seconds):
            content = b""
            try:
                assert self._file is not None
                if self._without_file is None or self._file.exists():
                    content = self._file.read_bytes()
                if content not in (self._file_content, complaint):
                    self.reload()
            except (OSError, ServingError) as error:
                complaint = content
                log.error("the models stay as they are: %s", error)
