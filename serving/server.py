"""The embedded server: models behind a gRPC port and a REST port."""

import contextlib
import errno
import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, Self

import grpc
import uvicorn

from serving.api.grpc_service import add_services
from serving.api.inference import Inference
from serving.api.rest_service import SPARE_THREADS, rest_app
from serving.middleware import connections, grpc_calls
from serving.middleware.health import WATCH_SECONDS, Health
from serving.middleware.metrics import Metrics
from serving.middleware.request_log import AccessLog
from serving.middleware.rest_calls import RestCalls
from serving.middleware.security import Tokens, add_port, check_security, rest_context
from serving.middleware.settings import LimitSettings, LogSettings, SecuritySettings
from serving.models.config import ModelConfig
from serving.models.manager import ModelManager
from serving.models.store import TENSORFLOW, Engines, ModelStore
from serving.page import routes
from serving.scheduling.admission import QueueSettings
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.repeat import repeat

BATCHED, QUEUED = BatchingSettings(), QueueSettings()
_STARTUP_SECONDS = 10.0
# After all requests are answered, only connections are left: a health watch, half of a body.
_CLOSE_SECONDS = 1
# Time for the last answers to be sent.
_WRITE_SECONDS = 0.2
_FLOOD = 4


class CannotListen(Exception):
    """A port that cannot be opened; the message is one line."""


class Server:
    """Serves one model, or the models of a configuration file. Usable as a context manager.

    Args:
        base_path: folder of `<version>/saved_model.pb`; may be empty or missing for now. The newest version is served.
        model_config_file: a ModelServerConfig in text format (`serving.models.config`), instead of `base_path`. With
            both, the file takes precedence while it exists.
        model_config_poll_seconds: interval for checking the file; 0 for never (HandleReloadConfigRequest re-reads it).
        grpc_port, rest_port: 0 picks a free port, reported in the attribute of that name.
        poll_seconds: interval for checking for new versions.
        batching: how requests are batched; None disables batching.
        engines: what loads versions, by the file that it needs; the first whose file is there.
        security, limits, logs: None for the defaults of their dataclasses.

    CannotListen: a port is taken. SettingsError: `host` requires TLS, or a settings file is invalid. ServingError: the
    configuration file is invalid.
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
        batching: BatchingSettings | None = BATCHED,
        queue: QueueSettings = QUEUED,
        security: SecuritySettings | None = None,
        limits: LimitSettings | None = None,
        logs: LogSettings | None = None,
        engines: Engines = TENSORFLOW,
    ):
        if base_path is None and model_config_file is None:
            raise ValueError("give base_path or model_config_file")
        self.host = host = f"[{host.strip('[]')}]" if ":" in host else host
        self._queue = queue
        security, limits = security or SecuritySettings(), limits or LimitSettings()
        check_security(security, host)
        self.health = Health(self._available)
        tls_context = rest_context(security)
        tokens, administrators = (
            Tokens(file) if file else None for file in (security.token_file, security.admin_token_file)
        )
        metrics, self._log = Metrics(), AccessLog(logs or LogSettings())
        observers = (metrics, self._log)
        self.calls = grpc_calls.GrpcCalls(
            limits.max_receive_seconds, observers, self._available, tokens, administrators
        )
        self.models = ModelManager(
            None if base_path is None else [ModelConfig(model_name, Path(base_path))],
            None if model_config_file is None else Path(model_config_file),
            model_config_poll_seconds,
            functools.partial(
                ModelStore, poll_seconds=poll_seconds, batching=batching, measured=metrics.measured, engines=engines
            ),
        )
        self.inference = Inference(self.models, queue, batching, limits)
        metrics.watch("requests_waiting", "Requests waiting in the queue.", lambda: self.inference.waiting)
        connections.reserve_descriptors(limits)
        # Open the ports first: a port that is taken should be reported before TensorFlow is imported.
        try:
            self._socket = connections.Listener(host, rest_port, limits)
        except OSError as error:
            raise _cannot_listen(host, rest_port, error) from error
        self.rest_port: int = self._socket.getsockname()[1]
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(queue.max_requests + SPARE_THREADS, thread_name_prefix="grpc"),
            interceptors=[self.calls],
            options=[
                ("grpc.max_receive_message_length", limits.max_request_bytes),
                # With it, a second server could share the port and take half of the requests.
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", connections.BURST * limits.max_connections),
                # Up to the first HTTP/2 frame, with or without TLS.
                ("grpc.server_handshake_timeout_ms", round(1000 * limits.max_head_seconds)),
                ("grpc.max_connection_idle_ms", round(1000 * limits.max_idle_seconds)),
            ],
            # Let gRPC reject excess calls without using a thread.
            maximum_concurrent_rpcs=_FLOOD * (queue.max_requests + SPARE_THREADS),
        )
        add_services(self.inference, self._grpc, security.admin_base_paths)
        self.health.add_to(self._grpc)
        try:
            self.grpc_port: int = add_port(self._grpc, f"{host}:{grpc_port}", security)
        except RuntimeError as error:
            self._socket.close()
            raise _cannot_listen(host, grpc_port, error) from error
        app = rest_app(self.inference, queue, [metrics.route(), *routes.routes()])
        config = uvicorn.Config(
            RestCalls(app, observers, self._available, tokens, routes.PATHS),
            ssl_context_factory=None if tls_context is None else lambda *_: tls_context,
            http=connections.http_protocol(limits),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        loop = connections.loop_with_deadline(limits.max_head_seconds)
        config.get_loop_factory = lambda: loop  # type: ignore[method-assign]
        self._rest = uvicorn.Server(config)
        self._rest_thread = threading.Thread(
            target=self._rest.run, kwargs={"sockets": [self._socket]}, name="rest", daemon=True
        )
        self._repeated: dict[str, tuple[float, Callable[[], None]]] = {
            "health": (WATCH_SECONDS, self.health.refresh),
            "arrivals": (grpc_calls.LOOK_SECONDS, self.calls.cancel_overdue),
            "connections": (connections.LOOK_SECONDS, lambda: connections.close_excess(self.grpc_port, limits)),
        }
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """Open both ports and start loading. Requests are UNAVAILABLE until the first versions are loaded.

        If there is no version yet, or none loads, requests are NOT_FOUND.
        """
        self.models.start()
        self._grpc.start()
        self._rest_thread.start()
        self._ends = [repeat(name, *how) for name, how in self._repeated.items()]
        _wait(lambda: self._rest.started, _STARTUP_SECONDS)

    @property
    def store(self) -> ModelStore:
        """Store of the first model."""
        return next(iter(self.models.stores.values()))

    def wait_until_available(self, timeout: float) -> bool:
        """Wait until every model has loaded the versions of its start, one at least; False after `timeout` seconds."""
        stores = self.models.stores
        return _wait(lambda: all(store.has_looked and store.newest is not None for store in stores.values()), timeout)

    def stop(self) -> None:
        """Report NOT_SERVING, refuse new requests, finish those in flight, close the ports, and unload."""
        self.health.enter_graceful_shutdown()
        self.inference.drain(self._queue.drain_seconds)
        threading.Event().wait(_WRITE_SECONDS)
        for end in self._ends:
            end()
        connections.hang_up(self.grpc_port)
        closed = self._grpc.stop(_CLOSE_SECONDS)
        self._rest.should_exit = True
        if self._rest_thread.ident is not None:
            self._rest_thread.join()
        closed.wait()
        self._socket.close()
        self.models.stop()
        self._log.close()

    def _available(self) -> dict[str, bool]:
        return {name: store.newest is not None for name, store in self.models.stores.items()}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def serve(base_path: str | Path | None = None, **options: Any) -> None:
    """Serve until SIGTERM or SIGINT and print the served versions; arguments and errors as in `Server`.

    Must be called from the main thread, which is where Python handles signals.
    """
    with _foreground() as stopping, Server(base_path, **options) as server:
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
def _foreground() -> Iterator[threading.Event]:
    """Log the server's warnings and errors to standard error; the event is set by a signal to stop."""
    stopping, logger, handler = threading.Event(), logging.getLogger("serving"), logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with contextlib.ExitStack() as after:
        for number in (signal.SIGTERM, signal.SIGINT):
            after.callback(signal.signal, number, signal.signal(number, lambda *_: stopping.set()))
        logger.addHandler(handler)
        after.callback(logger.removeHandler, handler)
        yield stopping


def _cannot_listen(host: str, port: int, error: Exception) -> CannotListen:
    if isinstance(error, OSError) and error.errno != errno.EADDRINUSE:
        return CannotListen(f"cannot listen on {host}:{port}: {error.strerror}")
    return CannotListen(f"cannot listen on {host}:{port}: is another server running? Choose another port, or 0.")


def _wait(done: Callable[[], bool], timeout: float) -> bool:
    pause = threading.Event()
    for _ in range(max(1, round(timeout / 0.02))):
        if done():
            return True
        pause.wait(0.02)
    return done()
