"""Timeouts for the message of a gRPC call, and for the client to take its answer.

gRPC assigns a call to a thread of the server's pool when its headers arrive, and the thread waits for the message: some
hundred calls without a message would occupy all threads forever. Handled as a stream of messages, which is the same on
the wire, the call waits here, where it can be cancelled. A call whose answer is not taken holds no thread, but memory
and admission.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from serving.middleware.limits import PIECE_BYTES

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


class ArrivalInterceptor(grpc.ServerInterceptor):
    """Cancels calls whose message does not arrive, or whose answer is not taken.

    Must be outermost: the other interceptors expect messages.

    Args:
        seconds: time for a message, from when a thread waits for it, and for each PIECE_BYTES of an answer. Time is
            counted in checks, not by the clock: the time in which the server was starved or stopped does not count
            against its clients.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        # Seconds left.
        self._waiting: dict[grpc.ServicerContext, float] = {}
        self._sending: dict[grpc.ServicerContext, float] = {}
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
            return grpc.stream_unary_rpc_method_handler(self._of_one(handler.unary_unary, self._sent), *forms)
        if handler.unary_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._of_one(handler.unary_stream), *forms)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: handler.stream_stream(self._all(requests, context), context), *forms
            )
        return handler

    def _of_one(self, answer: Callable[..., Any], then: Callable[..., None] | None = None) -> Callable[..., Any]:
        def of_one(requests: Iterator[Any], context: grpc.ServicerContext, *rest: Any) -> Any:
            request = self._next(requests, context)
            if request is None:  # gRPC itself refuses it with the same words
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "the method requires exactly one request message")
            response = answer(request, context, *rest)
            if then is not None:
                then(response, context)
            return response

        # health's Watch holds no thread, and its Check one of its own: gRPC reads that from attributes of the function.
        of_one.__dict__.update(getattr(answer, "__dict__", {}))
        return of_one

    def _sent(self, response: Any, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._sending[context] = self._seconds * (1 + response.ByteSize() // PIECE_BYTES)
        if not context.add_callback(lambda: self._taken(context)):
            self._taken(context)

    def _taken(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._sending.pop(context, None)

    def _all(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        while (request := self._next(requests, context)) is not None:
            yield request

    def _next(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """Next message; None at the end, grpc.RpcError once the call is cancelled."""
        with self._lock:
            self._waiting[context] = self._seconds
        try:
            return next(requests, None)
        finally:
            with self._lock:
                del self._waiting[context]

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            with self._lock:
                messages, answers = (_overdue(calls) for calls in (self._waiting, self._sending))
            for context in messages + answers:
                context.cancel()
            if messages:
                log.warning("%d calls cancelled: no message in %g seconds", len(messages), self._seconds)
            if answers:
                log.warning("%d calls cancelled: their clients did not take the answer", len(answers))


def _overdue(calls: dict[grpc.ServicerContext, float]) -> list[grpc.ServicerContext]:
    for context in calls:
        calls[context] -= _LOOK_SECONDS
    return [context for context, left in calls.items() if left < 0]
