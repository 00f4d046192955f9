"""The embedded server: a ModelStore behind a gRPC port and a REST port."""

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

from serving.grpc_service import add_services
from serving.guard import Guard
from serving.limits import LimitSettings
from serving.logs import LogSettings
from serving.model_store import ModelStore
from serving.rest_service import rest_app
from serving.security import SecuritySettings

# Requests under way get this long to finish when the server stops.
DRAIN_SECONDS = 5.0
_STARTUP_SECONDS = 10.0


class CannotListen(Exception):
    """A port that cannot be had, in one line."""


class Server:
    """Serves the newest version in `base_path` under `model_name`; usable as a context manager.

    Args:
        base_path: holds `<version>/saved_model.pb`; may be empty, or missing, for now.
        model_name: the name that clients ask for.
        grpc_port: 0 picks a free one; `grpc_port` of the server says which.
        rest_port: likewise.
        host: the address to listen on.
        poll_seconds: how often to look for a new version.
        workers: gRPC requests answered at once; more wait.
        security, limits, logs: None is the defaults of their dataclasses.

    Raises:
        CannotListen: a port is taken.
        SettingsError: `host` must not be listened on without TLS, or a file of the settings is bad.
    """

    def __init__(
        self,
        base_path: str | Path,
        model_name: str = "bert",
        grpc_port: int = 8500,
        rest_port: int = 8501,
        host: str = "127.0.0.1",
        poll_seconds: float = 1.0,
        workers: int = 16,
        security: SecuritySettings | None = None,
        limits: LimitSettings | None = None,
        logs: LogSettings | None = None,
    ):
        self.host = host
        guard = self.guard = Guard(
            host, lambda: {self.store.name: self.store.newest is not None}, security, limits, logs
        )
        self.store = ModelStore(model_name, base_path, poll_seconds, guard.metrics)
        # The ports first: whoever finds one taken should not wait for TensorFlow to hear of it.
        self._socket = _listening_socket(host, rest_port)
        self.rest_port: int = self._socket.getsockname()[1]
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(workers, thread_name_prefix="grpc"),
            interceptors=guard.interceptors,
            options=[
                ("grpc.max_receive_message_length", guard.limits.max_request_bytes),
                # With it, a second server would share the port and take half of the requests.
                ("grpc.so_reuseport", 0),
            ],
        )
        add_services(self.store, self._grpc, guard)
        try:
            self.grpc_port: int = guard.add_port(self._grpc, f"{host}:{grpc_port}")
        except RuntimeError as error:
            self._socket.close()
            raise _cannot_listen(host, grpc_port) from error
        self._rest = uvicorn.Server(
            uvicorn.Config(
                guard.around(rest_app(self.store, guard)),
                ssl_context_factory=guard.ssl_context_factory,
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=int(DRAIN_SECONDS),
            )
        )
        self._rest_thread = threading.Thread(
            target=self._rest.run, kwargs={"sockets": [self._socket]}, name="rest", daemon=True
        )

    def start(self) -> None:
        """Opens both ports and begins to load; until a version is available, requests are NOT_FOUND."""
        self.store.start()
        self.guard.health.start()
        self._grpc.start()
        self._rest_thread.start()
        _wait(lambda: self._rest.started, _STARTUP_SECONDS)

    def wait_until_available(self, timeout: float) -> bool:
        """Waits until a version serves; False if none does within `timeout` seconds."""
        return _wait(lambda: self.store.newest is not None, timeout)

    def stop(self) -> None:
        """Refuses new requests, lets those under way finish (DRAIN_SECONDS at most), and unloads."""
        self.guard.health.drain()
        drained = self._grpc.stop(DRAIN_SECONDS)
        self._rest.should_exit = True
        if self._rest_thread.ident is not None:
            self._rest_thread.join()
        drained.wait()
        self._socket.close()
        self.store.stop()
        self.guard.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def serve(base_path: str | Path, **options: Any) -> None:
    """Serves until SIGTERM or SIGINT, and prints which version serves; `options` are those of `Server`.

    Call it from the main thread, which is where Python handles signals. Raises CannotListen as `Server` does.
    """
    with _signals() as stopping, Server(base_path, **options) as server:
        store = server.store
        ports = f"gRPC {server.host}:{server.grpc_port}, REST http://{server.host}:{server.rest_port}"
        if not store.has_versions():
            waiting = f"waiting for a first version (<integer>/saved_model.pb) in {base_path}: {ports}"
            print(waiting, flush=True)
        shown = None
        while not stopping.wait(0.1):
            if store.newest != shown:
                shown = store.newest
                print(f"serving {store.name} version {shown} from {base_path}: {ports}", flush=True)
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
