"""gRPC calls on their way to the services: tokens, timeouts for messages and answers, a record of each.

gRPC assigns a call to a thread of the server's pool when its headers arrive, and the thread waits for the message: some
hundred calls without a message would occupy all threads forever. Handled as a stream of messages, which is the same on
the wire, the call waits here, where it can be cancelled. A call whose answer is not taken holds no thread, but memory
and admission.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from serving.middleware.limits import PIECE_BYTES
from serving.middleware.request_log import Names, Observer, RequestRecord, recorded
from serving.middleware.security import REFUSAL, Tokens, authorization
from serving.protos import MODEL_SERVICE

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
_OPEN_METHODS = "/grpc.health.v1.Health/"
_ADMINISTRATION = f"/{MODEL_SERVICE}/HandleReloadConfigRequest"
_NO_ADMINISTRATOR = "no administrator's token: send `authorization: Bearer TOKEN` with one of --admin-token-file"
_NO_ADMINISTRATION = "the models cannot be changed by a call: the server was started without --admin-token-file"


class GrpcCalls(grpc.ServerInterceptor):
    """The server's only interceptor.

    - Cancels calls whose message does not arrive, or whose answer is not taken.
    - Refuses calls without a token as UNAUTHENTICATED, without parsing their message.
    - Parses messages: INVALID_ARGUMENT for malformed ones (gRPC itself answers INTERNAL).
    - Records calls of one message and one answer, refused ones included.

    `seconds` are for a message, from when a thread waits for it, and for each PIECE_BYTES of an answer. Time is counted
    in checks, not by the clock: that in which the server was starved or stopped does not count against its clients.
    `observers` get the records; `names` are of all served models. Without `tokens` everyone is a client, without
    `administrators` nobody may change the models.
    """

    def __init__(
        self,
        seconds: float,
        observers: Sequence[Observer],
        names: Names,
        tokens: Tokens | None = None,
        administrators: Tokens | None = None,
    ):
        self._seconds, self._observers, self._names = seconds, observers, names
        self._tokens, self._administrators = tokens, administrators
        self.waiting: dict[grpc.ServicerContext, float] = {}
        self.sending: dict[grpc.ServicerContext, float] = {}
        self._lock = threading.Lock()

    def intercept_service(self, continuation: Callable[..., Any], details: grpc.HandlerCallDetails) -> Any:
        handler = continuation(details)
        if (refusal := self._refusal(details)) is not None:
            handler = handler or grpc.unary_unary_rpc_method_handler(None)
            parse, answer = _parser(None), lambda _, context: context.abort(*refusal)
        elif handler is None:
            return None
        else:
            parse = _parser(handler.request_deserializer)
            answer = handler.unary_unary or handler.unary_stream or handler.stream_stream or handler.stream_unary
        method = details.method.rpartition("/")[2]

        def call(requests: Iterator[bytes], context: grpc.ServicerContext, *rest: Any) -> Any:
            if handler.request_streaming:
                messages = iter(lambda: self._next(requests, context), None)
                return answer((parse(message, context) for message in messages), context, *rest)
            request = self._next(requests, context)
            if request is None:  # gRPC itself refuses it with the same words
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "the method requires exactly one request message")
            if handler.response_streaming:
                return answer(parse(request, context), context, *rest)
            return self._answered(method, lambda: parse(request, context), answer, context)

        # health's Watch holds no thread, and its Check one of its own: gRPC reads that from attributes of the function.
        call.__dict__.update(getattr(answer, "__dict__", {}))
        stream, unary = grpc.stream_stream_rpc_method_handler, grpc.stream_unary_rpc_method_handler
        return (stream if handler.response_streaming else unary)(call, None, handler.response_serializer)

    def _refusal(self, details: grpc.HandlerCallDetails) -> tuple[grpc.StatusCode, str] | None:
        tokens, refusal = self._tokens, REFUSAL
        if details.method == _ADMINISTRATION:
            tokens, refusal = self._administrators, _NO_ADMINISTRATOR
            if tokens is None:
                return grpc.StatusCode.PERMISSION_DENIED, _NO_ADMINISTRATION
        if tokens is None or details.method.startswith(_OPEN_METHODS):
            return None
        accepted = tokens.accept(authorization(details.invocation_metadata))
        return None if accepted else (grpc.StatusCode.UNAUTHENTICATED, refusal)

    def _answered(
        self, method: str, parse: Callable[[], Any], answer: Callable[..., Any], context: grpc.ServicerContext
    ) -> Any:
        record = RequestRecord(method, "GRPC", code=grpc.StatusCode.OK)
        with recorded(record, self._observers):
            try:
                message = parse()
                name = message.model_spec.name if hasattr(message, "model_spec") else ""
                record.model = name if name in self._names() else ""
                response = answer(message, context)
            except Exception:
                record.code = grpc.StatusCode.UNKNOWN
                raise
            finally:
                record.code = context.code() or record.code  # type: ignore[attr-defined]
        with self._lock:
            self.sending[context] = self._seconds * (1 + response.ByteSize() // PIECE_BYTES)
        if not context.add_callback(lambda: self._taken(context)):
            self._taken(context)
        return response

    def _taken(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self.sending.pop(context, None)

    def _next(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        """Next message; None at the end, grpc.RpcError once the call is cancelled."""
        with self._lock:
            self.waiting[context] = self._seconds
        try:
            return next(requests, None)
        finally:
            with self._lock:
                del self.waiting[context]

    def cancel_overdue(self) -> None:
        """Cancel calls whose time is over; must be called every LOOK_SECONDS."""
        with self._lock:
            for calls in (self.waiting, self.sending):
                calls.update({context: seconds - LOOK_SECONDS for context, seconds in calls.items()})
            messages, answers = ([c for c in calls if calls[c] < 0] for calls in (self.waiting, self.sending))
        for context in messages + answers:
            context.cancel()
        if messages:
            log.warning("%d calls cancelled: no message in %g seconds", len(messages), self._seconds)
        if answers:
            log.warning("%d calls cancelled: their clients did not take the answer", len(answers))


def _parser(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes, grpc.ServicerContext], Any]:
    def parse(request: bytes, context: grpc.ServicerContext) -> Any:
        try:
            return request if deserialize is None else deserialize(request)
        except Exception:  # protobuf's own error class differs between its implementations
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not the protocol buffer of this method")

    return parse
