"""One record for each request, over gRPC and REST, for metrics and the access log.

The record is created before the request is read, when only the method is known. `annotate` adds the resolved model.
When the answer is sent, the record goes to the observers. It holds only names that the server knows, never names that a
client made up. A request that is refused early is still counted under its model, if that model is served.
"""

import contextlib
import contextvars
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import HTTP_STATUS
from serving.models.servable import DEFAULT_SIGNATURE, Servable

# HTTP has fewer codes than gRPC: each status maps to its first code.
_CODE_OF_HTTP = {status: code for code, status in reversed(HTTP_STATUS.items())} | {
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_REST_METHODS = {":predict": "Predict", ":classify": "Classify", ":regress": "Regress", "/metadata": "GetModelMetadata"}

_REST_MODEL = re.compile(r"/v1/models/([^/:]+)")


@dataclass
class RequestRecord:
    """Attributes of a request, as far as known.

    Attributes:
        method: name in TensorFlow Serving's services (Predict, GetModelStatus, ...), or Embeddings; "" for other REST
            paths.
        entrypoint: GRPC or REST.
        model: "" if the model is not served, or not known yet.
        version, signature: None and "" if the request was refused earlier.
        rows: rows of the largest input; None if the request was refused earlier.
        inputs: the arrays; only a log that was configured to do so shows them.
        seconds: time until the answer; for gRPC, without the time in the queue of its thread pool.
        code: final status.
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


Observer = Callable[[RequestRecord], None]
# Names of all served models.
Names = Callable[[], Container[str]]
_current: contextvars.ContextVar[RequestRecord | None] = contextvars.ContextVar("record", default=None)


def annotate(servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray] | None = None) -> None:
    """Add servable, signature and inputs to the record of the current request, if there is one.

    `signature_name` "" means the default signature.
    """
    record = _current.get()
    if record is None:  # a warm-up
        return
    record.model, record.version = servable.name, servable.version
    name = signature_name or DEFAULT_SIGNATURE
    record.signature = name if name in servable.signature_defs else ""
    if inputs is not None:
        record.inputs = inputs
        record.rows = max((array.shape[0] for array in inputs.values() if array.ndim), default=0)


def name_model(model: str) -> None:
    """Add the name of a served model to the record of the current request, whose path does not have it."""
    if (record := _current.get()) is not None:
        record.model = model


@contextlib.contextmanager
def _recorded(record: RequestRecord, observers: Sequence[Observer]) -> Iterator[None]:
    began = time.perf_counter()
    token = _current.set(record)
    try:
        yield
    finally:
        _current.reset(token)
        record.seconds = record.seconds or time.perf_counter() - began
        for observer in observers:
            observer(record)


class CallInterceptor(grpc.ServerInterceptor):
    """Parses and records requests; INVALID_ARGUMENT for malformed messages (gRPC itself answers INTERNAL).

    Must be the outermost interceptor, so that it sees requests that others refuse.
    """

    def __init__(self, observers: Sequence[Observer], names: Names):
        self._observers = observers
        self._names = names

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

            # health's Watch does not hold a thread: gRPC reads that from an attribute of the function.
            answers.__dict__.update(getattr(stream, "__dict__", {}))
            return grpc.unary_stream_rpc_method_handler(answers, None, handler.response_serializer)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: handler.stream_stream((parse(item, context) for item in requests), context),
                None,
                handler.response_serializer,
            )
        return handler

    def _observed(self, method: str, parse: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
        def observed(request: bytes, context: grpc.ServicerContext) -> Any:
            record = RequestRecord(method, "GRPC")
            with _recorded(record, self._observers):
                try:
                    message = parse(request, context)
                    record.model = _known(_grpc_model(message), self._names)
                    response = answer(message, context)
                    record.code = context.code() or grpc.StatusCode.OK  # type: ignore[attr-defined]
                    return response
                except Exception:
                    record.code = context.code() or grpc.StatusCode.UNKNOWN  # type: ignore[attr-defined]
                    raise

        # health's Check has threads of its own: gRPC reads that from an attribute of the function.
        observed.__dict__.update(getattr(answer, "__dict__", {}))
        return observed


def _parser(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes, grpc.ServicerContext], Any]:
    def parse(request: bytes, context: grpc.ServicerContext) -> Any:
        if deserialize is None:
            return request
        try:
            return deserialize(request)
        except Exception:  # protobuf's own error class differs between its implementations
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not the protocol buffer of this method")

    return parse


class CallMiddleware:
    """Records the requests of an ASGI application. Must be outermost, so that it sees requests that others refuse."""

    def __init__(self, app: ASGIApp, observers: Sequence[Observer], names: Names):
        self._app = app
        self._observers = observers
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        record = RequestRecord(_rest_method(scope["path"]), "REST", _known(_rest_model(scope["path"]), self._names))

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                record.seconds = time.perf_counter() - began  # without the time that its client takes to read it
                failed = _CODE_OF_HTTP.get(status, grpc.StatusCode.INTERNAL)
                record.code = grpc.StatusCode.OK if status < 400 else failed
            await send(message)

        with _recorded(record, self._observers):
            await self._app(scope, receive, watched)


def _known(name: str, names: Names) -> str:
    return name if name in names() else ""


def _grpc_model(message: Any) -> str:
    """Model name of a request; several tasks must have the same model."""
    specs = [message] if hasattr(message, "model_spec") else getattr(message, "tasks", ())
    return specs[0].model_spec.name if specs else ""


def _rest_model(path: str) -> str:
    match = _REST_MODEL.match(path)
    return match[1] if match else ""


def _rest_method(path: str) -> str:
    if path == "/v1/embeddings":
        return "Embeddings"
    if not path.startswith("/v1/models/"):
        return ""
    return next((method for end, method in _REST_METHODS.items() if path.endswith(end)), "GetModelStatus")
