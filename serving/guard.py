"""What stands between the ports and the services: one object that a server builds, asks and passes on."""

from collections.abc import Callable, Mapping, Sequence

import grpc
import numpy as np
from starlette.applications import Starlette
from starlette.types import ASGIApp

from serving import calls, page
from serving.arrivals import ArrivalInterceptor
from serving.health import Health
from serving.limits import LimitSettings, check
from serving.logs import AccessLog, LogSettings
from serving.metrics import Metrics
from serving.security import (
    SecuritySettings,
    TokenInterceptor,
    TokenMiddleware,
    Tokens,
    add_port,
    rest_context,
)
from serving.servable import Servable


class Guard:
    """Security, limits, health, metrics and the access log of one server.

    Args:
        host: the address that will be listened on.
        available: the names of all configured models, and whether a version of each is available.
        security, limits, logs: None is their defaults.

    Raises:
        SettingsError: `host` must not be listened on like this, or a file of the settings is bad.
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
        # uvicorn's: None speaks plain HTTP.
        self.ssl_context_factory = None if context is None else lambda *_: context
        self._tokens = Tokens(self._security.token_file) if self._security.token_file else None
        self._log = AccessLog(logs or LogSettings())
        self._observers: Sequence[calls.Observer] = (self.metrics, self._log)

    @property
    def interceptors(self) -> list[grpc.ServerInterceptor]:
        """Those of the gRPC server, outermost first."""
        first: list[grpc.ServerInterceptor] = [self._arrivals, calls.CallInterceptor(self._observers)]
        return [*first, TokenInterceptor(self._tokens)] if self._tokens else first

    def start(self) -> None:
        """Begins to tell the health, and to cancel calls whose message does not arrive."""
        self.health.start()
        self._arrivals.start()

    def add_port(self, server: grpc.Server, address: str) -> int:
        """Opens the gRPC port and adds health and reflection; RuntimeError if it is taken."""
        self.health.add_to(server)
        return add_port(server, address, self._security)

    def around(self, app: Starlette) -> ASGIApp:
        """The REST application with metrics, the page at `/`, tokens and records."""
        app.router.routes += [self.metrics.route(), *page.routes()]
        guarded: ASGIApp = TokenMiddleware(app, self._tokens, page.PATHS) if self._tokens else app
        return calls.CallMiddleware(guarded, self._observers)

    def check(self, servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray]) -> None:
        """Before any signature is called: records what is called, and refuses inputs above the limits."""
        calls.describe(servable, signature_name, inputs)
        check(inputs, self.limits)

    def close(self) -> None:
        self._arrivals.close()
        self._log.close()
