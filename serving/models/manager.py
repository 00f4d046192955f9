"""All models of a server, labels of versions, and changes of the model list at run time.

Labels (`stable`, `canary`) are names of versions in the configuration. Rules and messages are those of
tensorflow/serving's `ServerCore::ReloadConfig` and `UpdateModelVersionLabelMap`:

- A label must be assigned to an AVAILABLE version. So a canary takes two reloads: the first loads the version, the
  second labels it. A configuration file that is read again may label versions that it has loaded.
- A label of an unloaded version is NOT_FOUND, an unknown label INVALID_ARGUMENT.

But a configuration is applied as a whole or not at all: all models are loaded beside the current ones and then replace
them together; a list without models, or a model without a version that loads, is refused. The first configuration may
label versions that are not loaded yet.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import grpc

from serving import errors
from serving.errors import ServingError
from serving.models.config import ModelConfig, read_model_configs
from serving.models.servable import Servable
from serving.models.store import ModelStore, VersionStatus
from serving.scheduling.repeat import repeat

log = logging.getLogger(__name__)

# Longest delay until a refused file is tried again.
_LONGEST_RETRY_SECONDS = 60.0


class Target(NamedTuple):
    """Model and version that a request refers to."""

    name: str
    version: int | None = None  # the highest that is available
    label: str = ""  # takes precedence over `version`


class ModelManager:
    """The served models. Reading is thread-safe; `reload` may be called from any thread and runs one at a time.

    `configs` are the models; None to read them from `file`, a ModelServerConfig in text format, which takes precedence
    while it exists. It is read again if it has changed, every `file_poll_seconds`; 0 for never. ServingError: the file
    is invalid.
    """

    def __init__(
        self,
        configs: Iterable[ModelConfig] | None = None,
        file: Path | None = None,
        file_poll_seconds: float = 0.0,
        make_store: Callable[[ModelConfig], ModelStore] = ModelStore,
    ):
        self._file, self._file_poll_seconds, self._make_store = file, file_poll_seconds, make_store
        self._applied: bytes | None = None
        self._without_file = None if configs is None else list(configs)
        if file is not None:
            configs, self._applied = self._read_file()
        # By name. Replaced as a whole, never modified: readers need no lock.
        self.stores: Mapping[str, ModelStore] = {config.name: make_store(config) for config in configs or ()}
        self._reloading = threading.Lock()
        self._end: Callable[[], None] = lambda: None
        self._refused: list[object] = []  # content that was refused last, and the reason
        self._wait = self._again = 0.0

    def start(self) -> None:
        """Start to load the models; returns at once."""
        for store in self.stores.values():
            store.start()
        if self._file is not None and self._file_poll_seconds > 0:
            self._end = repeat("model-config-file", self._file_poll_seconds, self._look)

    def stop(self) -> None:
        """Unload all models, after loads in progress have finished."""
        self._end()
        with self._reloading:
            for store in self.stores.values():
                store.stop()

    def get(self, target: Target) -> Servable:
        """Servable for a request.

        NOT_FOUND if it is not served, INVALID_ARGUMENT for an unknown label, UNAVAILABLE while the server loads its
        first versions after a start: clients may retry.
        """
        target = self._resolved(target)
        store = self.stores.get(target.name)
        servable = store.get(target.version) if store else None
        if servable is None:
            # The first sentence is TensorFlow Serving's own: clients match it.
            name, version, _ = target
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            if store is not None and not store.has_looked:
                loading = f"Servable not found for request: {request}; {name} is still loading: ask again"
                raise ServingError(grpc.StatusCode.UNAVAILABLE, loading)
            serving = [f"{store.name} version {number}" for store in self.stores.values() for number in store.versions]
            raise errors.not_found(
                f"Servable not found for request: {request}; served: {', '.join(serving) or 'nothing yet'}"
            )
        return servable

    def status(self, target: Target) -> list[VersionStatus]:
        """States of one version, or of all ever seen, oldest first; NOT_FOUND if there are none."""
        name, version, _ = self._resolved(target)
        store = self.stores.get(name)
        statuses = store.status() if store else {}
        if not statuses:
            raise errors.not_found(f"Could not find any versions of model {name}")
        if version is None:
            return list(statuses.values())
        if version not in statuses:
            raise errors.not_found(f"Could not find version {version} of model {name}")
        return [statuses[version]]

    def reload(self, configs: Iterable[ModelConfig] | None = None) -> None:
        """Serve `configs`, or those of the file, and nothing else from now on; returns once their versions are loaded.

        ServingError: nothing has changed: INVALID_ARGUMENT for an invalid file, FAILED_PRECONDITION for a label of a
        version that is not available, UNKNOWN if a model has no version that loads.
        """
        with self._reloading:
            if configs is not None:
                self._replace(list(configs), from_file=False)
                return
            configs, content = self._read_file()
            self._replace(configs, from_file=True)
            self._applied = content

    def _replace(self, configs: Sequence[ModelConfig], from_file: bool) -> None:
        if not from_file:
            for config in configs:
                current = self.stores.get(config.name)
                self._check_labels(config, current.versions if current else ())
        stores = []
        for config in configs:  # a new store if the base path has changed
            store = self.stores.get(config.name)
            stores.append(store if store and store.base_path == config.base_path else self._make_store(config))
        # Check what is cheap before anything is loaded.
        self._check_all(configs, stores, [store.newest is not None or store.has_versions() for store in stores])
        prepared: list[Mapping[int, Servable]] = []
        try:
            for config, store in zip(configs, stores, strict=True):
                prepared.append(store.prepare(config))
            self._check_all(configs, stores, [bool(kept) for kept in prepared])
            for config, kept in zip(configs, prepared, strict=True):
                self._check_labels(config, kept)
        except ServingError:
            for store, kept in zip(stores, prepared, strict=False):
                store.abandon(kept)
            raise
        before = self.stores.values()
        for config, store, kept in zip(configs, stores, prepared, strict=True):
            store.commit(config, kept)
        self.stores = {store.name: store for store in stores}
        for store in before:
            if store not in stores:
                store.stop()
        for store in stores:
            if store not in before:
                store.start()

    def _check_all(self, configs: Sequence[ModelConfig], stores: Sequence[ModelStore], loaded: Sequence[bool]) -> None:
        """UNKNOWN unless each model is `loaded`, or still waits for its first version."""
        missing = []
        for config, store, good in zip(configs, stores, loaded, strict=True):
            if not good and (store.newest is not None or self.stores.get(config.name) is not store):
                failed = [status.error_message for status in store.status().values() if status.error_message]
                reason = f" due to error: {failed[-1]}" if failed else f": no version in {store.base_path}"
                missing.append(config.name + reason)
        if missing:
            what = f"{len(missing)} model(s) did not become available: {{{', '.join(missing)}}}; nothing has changed"
            raise ServingError(grpc.StatusCode.UNKNOWN, what)

    def _resolved(self, target: Target) -> Target:
        if not target.name:
            raise errors.invalid("ModelSpec has no name specified.")
        if not target.label:
            return target
        store = self.stores.get(target.name)
        if store is None or target.label not in store.config.labels:
            raise errors.invalid(f"Unrecognized servable version label: {target.label}")
        return Target(target.name, store.config.labels[target.label])

    def _check_labels(self, config: ModelConfig, available: Collection[int]) -> None:
        for version in config.labels.values():
            if version not in available:
                raise ServingError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {config.name},"
                    " which is not currently available for inference",
                )

    def _read_file(self) -> tuple[list[ModelConfig], bytes | None]:
        """Models and content of the file; None for the content if the file is gone and `configs` are used instead."""
        if self._file is None:
            raise errors.invalid("the server was started without a model_config_file: send a ModelConfigList")
        if self._without_file is not None and not self._file.exists():
            return self._without_file, None
        configs, content = read_model_configs(self._file)
        # A file of the served folder's model may have been written where the folder had another path.
        if self._without_file and [one.name for one in configs] == [one.name for one in self._without_file]:
            configs = [dataclasses.replace(configs[0], base_path=self._without_file[0].base_path)]
        return configs, content

    def _content(self, file: Path) -> object:
        """Content to compare with that applied last: bytes, None for no file, or why it cannot be read."""
        try:
            return file.read_bytes() if file.exists() else None
        except OSError as error:
            return str(error)

    def _look(self) -> None:
        assert self._file is not None
        content = self._content(self._file)
        same = self._refused[:1] == [content]
        if content == self._applied or (same and time.monotonic() < self._again):
            return
        try:
            self.reload()
            self._refused = []
        except (OSError, ServingError) as error:
            # Retried, since its versions may yet be pushed; ever less often, since a try may load a lot.
            self._wait = min(2 * self._wait, _LONGEST_RETRY_SECONDS) if same else self._file_poll_seconds
            self._again = time.monotonic() + self._wait
            if self._refused != [content, str(error)]:
                log.error("the models are unchanged: %s", error)
            self._refused = [content, str(error)]
