"""Timeout for the message of a gRPC call.

gRPC assigns a call to a thread of the server's pool when its headers arrive, and the thread waits for the message: some
hundred calls without a message would occupy all threads forever. Handled as a stream of messages, which is the same on
the wire, the call waits here, where it can be cancelled.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


class ArrivalInterceptor(grpc.ServerInterceptor):
    """Cancels calls whose message does not arrive. Must be outermost: the other interceptors expect messages.

    Args:
        seconds: time for a message, from when a thread waits for it. Time is counted in checks, not by the clock: the
            time in which the server was starved or stopped does not count against its clients.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._waiting: dict[grpc.ServicerContext, int] = {}  # number of checks
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def start(self) -> None:
        """Start to cancel overdue calls."""
        self._thread.start()

    def close(self) -> None:
        self._stop.set()

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a message, each in a thread."""
        return len(self._waiting)

    def intercept_service(self, continuation: Callable[..., Any], details: grpc.HandlerCallDetails) -> Any:
        handler = continuation(details)
        if handler is None:
            return None
        forms = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._of_one(handler.unary_unary), *forms)
        if handler.unary_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._of_one(handler.unary_stream), *forms)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: handler.stream_stream(self._all(requests, context), context), *forms
            )
        return handler

    def _of_one(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        def of_one(requests: Iterator[Any], context: grpc.ServicerContext, *rest: Any) -> Any:
            request = self._next(requests, context)
            if request is None:  # gRPC itself refuses it with the same words
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "the method requires exactly one request message")
            return answer(request, context, *rest)

        # health's Watch holds no thread, and its Check one of its own: gRPC reads that from attributes of the function.
        of_one.__dict__.update(getattr(answer, "__dict__", {}))
        return of_one

    def _all(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        while (request := self._next(requests, context)) is not None:
            yield request

    def _next(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """Next message; None at the end, grpc.RpcError once the call is cancelled."""
        with self._lock:
            self._waiting[context] = 0
        try:
            return next(requests, None)
        finally:
            with self._lock:
                del self._waiting[context]

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            with self._lock:
                for context in self._waiting:
                    self._waiting[context] += 1
                overdue = [context for context, looks in self._waiting.items() if looks * _LOOK_SECONDS > self._seconds]
            for context in overdue:
                context.cancel()
            if overdue:
                log.warning("%d calls cancelled: no message in %g seconds", len(overdue), self._seconds)
