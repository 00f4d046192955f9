"""`grpc.health.v1` (Check, Watch) and server reflection.

| service | SERVING |
|---|---|
| "" and `tensorflow.serving.PredictionService` | once all models have been available at once; then while any model is |
| `tensorflow.serving.ModelService` | from the start: it answers before any model is loaded |
| the name of a model | while a version of it is available |

So a server gets no traffic before all models are loaded, and a model that is added or fails later does not take the
others out of service. After `enter_graceful_shutdown`, all are NOT_SERVING. Check has threads of its own, so that a
probe is answered under an overload.
"""

from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from serving.protos import MODEL_SERVICE, PREDICTION_SERVICE

# Longest delay of a Watch, which needs `Health.refresh` as often; Check has none.
WATCH_SECONDS = 0.1
# More than one, because a call whose message does not arrive holds one for a while.
_CHECK_THREADS = futures.ThreadPoolExecutor(16, thread_name_prefix="health-check")
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health(health.HealthServicer):
    """Reports which of all configured models are `available`."""

    def __init__(self, available: Callable[[], Mapping[str, bool]]):
        super().__init__()
        self._available = available
        self._complete = False

    def add_to(self, server: grpc.Server) -> None:
        """Register both services on `server`."""
        self.refresh()
        health_pb2_grpc.add_HealthServicer_to_server(self, server)
        names = (PREDICTION_SERVICE, MODEL_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

    def Check(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Any:
        self.refresh()
        return super().Check(request, context)

    # gRPC reads the threads of a method from this attribute of its function.
    Check.experimental_thread_pool = _CHECK_THREADS  # type: ignore[attr-defined]

    def refresh(self) -> None:
        """Look again what is available, and tell watchers."""
        with self._lock:
            models = self._available()
            self._complete = self._complete or (bool(models) and all(models.values()))
            ready = self._complete and any(models.values())
            states = dict.fromkeys(self._server_status, _NOT_SERVING)  # for models that are no longer configured
            states |= {name: _SERVING if there else _NOT_SERVING for name, there in models.items()}
            states |= dict.fromkeys(("", PREDICTION_SERVICE), _SERVING if ready else _NOT_SERVING)
            states[MODEL_SERVICE] = _SERVING
            for name, state in states.items():
                if self._server_status.get(name) != state:
                    self.set(name, state)
