"""The embedded server: models behind a gRPC port and a REST port."""

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import uvicorn
from typing_extensions import Self

from serving.batching import BatchingSettings
from serving.grpc_service import add_services
from serving.guard import Guard
from serving.inference import Inference
from serving.limits import LimitSettings
from serving.logs import LogSettings
from serving.model_config import ModelConfig
from serving.model_manager import ModelManager
from serving.model_store import ModelStore
from serving.request_queue import QueueSettings
from serving.rest_service import rest_app
from serving.security import SecuritySettings

BATCHED, QUEUED = BatchingSettings(), QueueSettings()
_STARTUP_SECONDS = 10.0
# Once all requests are answered, what is left are connections: a watch of the health, half of a body.
_CLOSE_SECONDS = 1
# gRPC's threads beyond those that the queue admits: they refuse, and answer health and status.
_SPARE_THREADS = 16
_FLOOD = 4


class CannotListen(Exception):
    """A port that cannot be had, in one line."""


class Server:
    """Serves one model, or those of a file; usable as a context manager.

    Args:
        base_path: holds `<version>/saved_model.pb`; may be empty, or missing, for now. Its newest version is served.
        model_name: the name that clients ask for.
        model_config_file: a ModelServerConfig in text format (`serving.model_config`), instead of `base_path`; or
            beside it, and then it rules while it exists.
        model_config_poll_seconds: how often to look whether the file has changed; 0 for never, since a
            HandleReloadConfigRequest without a configuration has it read again.
        allow_version_labels_for_unavailable_models: see `serving.model_manager`.
        grpc_port: 0 picks a free one; `grpc_port` of the server says which.
        rest_port: likewise.
        host: the address to listen on.
        poll_seconds: how often to look for a new version.
        batching: how requests are batched; None for not at all.
        queue: how many requests may wait, and how long.
        security, limits, logs: None is the defaults of their dataclasses.

    Raises:
        CannotListen: a port is taken.
        SettingsError: `host` must not be listened on without TLS, or a file of the settings is bad.
        ServingError: the file is wrong, in one line.
    """

    def __init__(
        self,
        base_path: str | Path | None = None,
        model_name: str = "bert",
        grpc_port: int = 8500,
        rest_port: int = 8501,
        host: str = "127.0.0.1",
        poll_seconds: float = 1.0,
        model_config_file: str | Path | None = None,
        model_config_poll_seconds: float = 0.0,
        allow_version_labels_for_unavailable_models: bool = False,
        batching: BatchingSettings | None = BATCHED,
        queue: QueueSettings = QUEUED,
        security: SecuritySettings | None = None,
        limits: LimitSettings | None = None,
        logs: LogSettings | None = None,
    ):
        if base_path is None and model_config_file is None:
            raise ValueError("give base_path or model_config_file")
        self.host = host
        self._queue = queue
        guard = self.guard = Guard(host, self._available, security, limits, logs)
        self.models = ModelManager(
            None if base_path is None else [ModelConfig(model_name, Path(base_path))],
            None if model_config_file is None else Path(model_config_file),
            poll_seconds,
            model_config_poll_seconds,
            batching,
            allow_version_labels_for_unavailable_models,
            guard.metrics,
        )
        self.inference = Inference(self.models, queue, batching, guard)
        guard.metrics.watch("requests_waiting", "Requests that wait for their turn.", lambda: self.inference.waiting)
        # The ports first: whoever finds one taken should not wait for TensorFlow to hear of it.
        self._socket = _listening_socket(host, rest_port)
        self.rest_port: int = self._socket.getsockname()[1]
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(queue.max_requests + _SPARE_THREADS, thread_name_prefix="grpc"),
            interceptors=guard.interceptors,
            options=[
                ("grpc.max_receive_message_length", guard.limits.max_request_bytes),
                # With it, a second server would share the port and take half of the requests.
                ("grpc.so_reuseport", 0),
            ],
            # Refused by gRPC itself, lest a flood waits for a thread to be refused by.
            maximum_concurrent_rpcs=_FLOOD * (queue.max_requests + _SPARE_THREADS),
        )
        add_services(self.inference, self._grpc)
        try:
            self.grpc_port: int = guard.add_port(self._grpc, f"{host}:{grpc_port}")
        except RuntimeError as error:
            self._socket.close()
            raise _cannot_listen(host, grpc_port) from error
        self._rest = uvicorn.Server(
            uvicorn.Config(
                guard.around(rest_app(self.inference, queue)),
                ssl_context_factory=guard.ssl_context_factory,
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_CLOSE_SECONDS,
            )
        )
        self._rest_thread = threading.Thread(
            target=self._rest.run, kwargs={"sockets": [self._socket]}, name="rest", daemon=True
        )

    def start(self) -> None:
        """Opens both ports and begins to load: until the first versions are, requests are UNAVAILABLE.

        Where there are none yet, or none that loads, they are NOT_FOUND.
        """
        self.models.start()
        self.guard.start()
        self._grpc.start()
        self._rest_thread.start()
        _wait(lambda: self._rest.started, _STARTUP_SECONDS)

    @property
    def store(self) -> ModelStore:
        """That of the first model."""
        return next(iter(self.models.stores.values()))

    def wait_until_available(self, timeout: float) -> bool:
        """Waits until a version of every model serves; False if that takes more than `timeout` seconds."""
        return _wait(lambda: all(store.newest is not None for store in self.models.stores.values()), timeout)

    def stop(self) -> None:
        """Says NOT_SERVING, refuses new requests, lets those under way finish, closes the ports, and unloads."""
        self.guard.health.drain()
        self.inference.drain(self._queue.drain_seconds)
        closed = self._grpc.stop(_CLOSE_SECONDS)
        self._rest.should_exit = True
        if self._rest_thread.ident is not None:
            self._rest_thread.join()
        closed.wait()
        self._socket.close()
        self.models.stop()
        self.guard.close()

    def _available(self) -> dict[str, bool]:
        return {name: store.newest is not None for name, store in self.models.stores.items()}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def serve(base_path: str | Path | None = None, **options: Any) -> None:
    """Serves until SIGTERM or SIGINT, and prints which versions serve; arguments and errors are those of `Server`.

    Call it from the main thread, which is where Python handles signals.
    """
    with _signals() as stopping, Server(base_path, **options) as server:
        ports = f"gRPC {server.host}:{server.grpc_port}, REST http://{server.host}:{server.rest_port}"
        for store in server.models.stores.values():
            if not store.has_versions():
                waiting = f"waiting for a first version (<integer>/saved_model.pb) in {store.base_path}: {ports}"
                print(waiting, flush=True)
        shown: dict[str, int | None] = {}
        while not stopping.wait(0.1):
            for name, store in server.models.stores.items():
                version = store.newest
                if version != shown.get(name):
                    shown[name] = version
                    print(f"serving {name} version {version} from {store.base_path}: {ports}", flush=True)
        print("stopping", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _signals() -> Iterator[threading.Event]:
    stopping = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield stopping
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _listening_socket(host: str, port: int) -> socket.socket:
    try:
        listening = socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise _cannot_listen(host, port) from error
    # Accepted connections inherit it. asyncio sets it only on sockets that it makes itself; without it every
    # answer on a kept connection waits 40 ms for a delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _cannot_listen(host: str, port: int) -> CannotListen:
    return CannotListen(f"cannot listen on {host}:{port}: is another server there? Choose another port, or 0.")


def _wait(done: Callable[[], bool], timeout: float) -> bool:
    pause = threading.Event()
    for _ in range(max(1, round(timeout / 0.02))):
        if done():
            return True
        pause.wait(0.02)
    return done()
