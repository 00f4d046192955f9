"""Everything between the ports and the services, in one object."""

from collections.abc import Callable, Mapping, Sequence

import grpc
import numpy as np
from starlette.applications import Starlette
from starlette.types import ASGIApp

from serving.middleware import request_log
from serving.middleware.health import Health
from serving.middleware.limits import LimitSettings, check
from serving.middleware.logs import AccessLog, LogSettings
from serving.middleware.metrics import Metrics
from serving.middleware.receive_timeout import ArrivalInterceptor
from serving.middleware.security import (
    SecuritySettings,
    TokenInterceptor,
    TokenMiddleware,
    Tokens,
    add_port,
    rest_context,
)
from serving.models.servable import Servable
from serving.page import routes


class ServerPolicy:
    """Security, limits, health, metrics and access log of one server.

    Args:
        host: the address to listen on.
        available: names of all configured models, and whether a version of each is available.
        security, limits, logs: None for the defaults.

    Raises:
        SettingsError: `host` requires TLS, or a settings file is invalid.
    """

    def __init__(
        self,
        host: str,
        available: Callable[[], Mapping[str, bool]],
        security: SecuritySettings | None = None,
        limits: LimitSettings | None = None,
        logs: LogSettings | None = None,
    ):
        self._security = security or SecuritySettings()
        self._security.check(host)
        self.limits = limits or LimitSettings()
        self.metrics = Metrics()
        self._arrivals = ArrivalInterceptor(self.limits.max_receive_seconds)
        self.health = Health(available)
        context = rest_context(self._security)
        # For uvicorn: None means plain HTTP.
        self.ssl_context_factory = None if context is None else lambda *_: context
        self.admin_base_paths = self._security.admin_base_paths
        self._tokens, self._administrators = (
            Tokens(file) if file else None for file in (self._security.token_file, self._security.admin_token_file)
        )
        self._log = AccessLog(logs or LogSettings())
        self._observers: Sequence[request_log.Observer] = (self.metrics, self._log)
        self._names = available

    @property
    def interceptors(self) -> list[grpc.ServerInterceptor]:
        """Interceptors of the gRPC server, outermost first."""
        tokens = TokenInterceptor(self._tokens, self._administrators)
        return [self._arrivals, request_log.CallInterceptor(self._observers, self._names), tokens]

    def start(self) -> None:
        """Start to report health, and to cancel calls whose message does not arrive."""
        self.health.start()
        self._arrivals.start()

    def add_port(self, server: grpc.Server, address: str) -> int:
        """Open the gRPC port and add health and reflection; RuntimeError if the port is taken."""
        self.health.add_to(server)
        return add_port(server, address, self._security)

    def wrap(self, app: Starlette) -> ASGIApp:
        """Wrap the REST application with metrics, the page at `/`, tokens and records."""
        app.router.routes += [self.metrics.route(), *routes.routes()]
        wrapped: ASGIApp = TokenMiddleware(app, self._tokens, routes.PATHS) if self._tokens else app
        return request_log.CallMiddleware(wrapped, self._observers, self._names)

    def check(self, servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray]) -> None:
        """Record the called signature and refuse inputs above the limits."""
        request_log.annotate(servable, signature_name, inputs)
        check(inputs, self.limits)

    def close(self) -> None:
        self._arrivals.close()
        self._log.close()
