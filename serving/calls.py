"""One record a request, over gRPC and REST alike, for whoever counts or logs them.

It begins at the door, where only the method is known; whoever resolves the model adds what it found (`describe`); when
the answer is on its way, the record goes to the observers. Names that a client made up never come into it: only what
the server knows by that name does.
"""

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import HTTP_STATUS
from serving.servable import DEFAULT_SIGNATURE, Servable

# HTTP says less than gRPC: the first code of each status stands for all.
_CODE_OF_HTTP = {status: code for code, status in reversed(HTTP_STATUS.items())} | {
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_REST_METHODS = {":predict": "Predict", ":classify": "Classify", ":regress": "Regress", "/metadata": "GetModelMetadata"}


@dataclass
class Record:
    """What is known of a request.

    Attributes:
        method: as TensorFlow Serving's services name it (Predict, GetModelStatus, ...); "" for other paths of REST.
        entrypoint: GRPC or REST.
        model, version, signature: "", None and "" where the request did not get that far.
        rows: in the largest input; None likewise.
        inputs: the arrays themselves, which only a log that was asked to shows.
        seconds: from the first look at the request to the answer; of gRPC, without the time in the queue of workers.
        code: how it ended.
    """

    method: str
    entrypoint: str
    model: str = ""
    version: int | None = None
    signature: str = ""
    rows: int | None = None
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN


Observer = Callable[[Record], None]
_current: contextvars.ContextVar[Record | None] = contextvars.ContextVar("call", default=None)


def describe(servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray] | None = None) -> None:
    """Adds to the current call, if there is one, what will answer it, and to what once that is read.

    `signature_name` "" is the default.
    """
    call = _current.get()
    if call is None:  # a warm-up
        return
    call.model, call.version = servable.name, servable.version
    name = signature_name or DEFAULT_SIGNATURE
    call.signature = name if name in servable.signature_defs else ""
    if inputs is not None:
        call.inputs = inputs
        call.rows = max((array.shape[0] for array in inputs.values() if array.ndim), default=0)


@contextlib.contextmanager
def _recorded(call: Record, observers: Sequence[Observer]) -> Iterator[None]:
    began = time.perf_counter()
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
        call.seconds = time.perf_counter() - began
        for observer in observers:
            observer(call)


class CallInterceptor(grpc.ServerInterceptor):
    """Parses requests, with INVALID_ARGUMENT for bytes that are none (gRPC itself says INTERNAL), and records them.

    It comes first among the interceptors, so that it sees what the others refuse.
    """

    def __init__(self, observers: Sequence[Observer]):
        self._observers = observers

    def intercept_service(self, continuation: Callable[..., Any], details: grpc.HandlerCallDetails) -> Any:
        handler = continuation(details)
        if handler is None or (handler.request_deserializer is None and handler.unary_unary is None):
            return handler
        parse = _parser(handler.request_deserializer)
        if handler.unary_unary is not None:
            behaviour = self._observed(details.method.rpartition("/")[2], parse, handler.unary_unary)
            return grpc.unary_unary_rpc_method_handler(behaviour, None, handler.response_serializer)
        if handler.unary_stream is not None:
            stream = handler.unary_stream

            def answers(request: bytes, context: grpc.ServicerContext, *rest: Any) -> Any:
                return stream(parse(request, context), context, *rest)

            # health's Watch holds no thread: gRPC reads that from the function.
            answers.__dict__.update(getattr(stream, "__dict__", {}))
            return grpc.unary_stream_rpc_method_handler(answers, None, handler.response_serializer)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: handler.stream_stream((parse(one, context) for one in requests), context),
                None,
                handler.response_serializer,
            )
        return handler

    def _observed(self, method: str, parse: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
        def observed(request: bytes, context: grpc.ServicerContext) -> Any:
            call = Record(method, "GRPC")
            with _recorded(call, self._observers):
                try:
                    response = answer(parse(request, context), context)
                    call.code = context.code() or grpc.StatusCode.OK  # type: ignore[attr-defined]
                    return response
                except Exception:
                    call.code = context.code() or grpc.StatusCode.UNKNOWN  # type: ignore[attr-defined]
                    raise

        return observed


def _parser(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes, grpc.ServicerContext], Any]:
    def parse(request: bytes, context: grpc.ServicerContext) -> Any:
        if deserialize is None:
            return request
        try:
            return deserialize(request)
        except Exception:  # protobuf's own error, of which its implementations have several
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not the protocol buffer of this method")

    return parse


class CallMiddleware:
    """Records the requests of an ASGI application; the outermost, so that it sees what others refuse."""

    def __init__(self, app: ASGIApp, observers: Sequence[Observer]):
        self._app = app
        self._observers = observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = Record(_rest_method(scope["path"]), "REST")

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                failed = _CODE_OF_HTTP.get(status, grpc.StatusCode.INTERNAL)
                call.code = grpc.StatusCode.OK if status < 400 else failed
            await send(message)

        with _recorded(call, self._observers):
            await self._app(scope, receive, watched)


def _rest_method(path: str) -> str:
    if not path.startswith("/v1/models/"):
        return ""
    return next((method for end, method in _REST_METHODS.items() if path.endswith(end)), "GetModelStatus")
