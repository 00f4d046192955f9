"""REST requests on their way to the application: bodies, tokens, a record of each, answers in pieces."""

import contextlib
import re
import time
import zlib
from collections.abc import Callable, Collection, Sequence

import anyio
import grpc
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import HTTP_STATUS
from serving.middleware.limits import PIECE_BYTES
from serving.middleware.request_log import Names, Observer, RequestRecord, recorded
from serving.middleware.security import REFUSAL, Tokens
from serving.middleware.settings import LimitSettings

HELD = "bert_tfx.held"
CLOSE = {"Connection": "close"}
# The system takes so many bytes at once, even if the client does not.
_SMALL_BYTES = 32 * 1024
# HTTP has fewer codes than gRPC: each status maps to its first code.
_CODE_OF_HTTP = {status: code for code, status in reversed(HTTP_STATUS.items())} | {
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_METHODS = {":predict": "Predict", ":classify": "Classify", ":regress": "Regress", "/metadata": "GetModelMetadata"}
_METHODS |= {"/infer": "Predict"}
_FURTHER = {
    **dict.fromkeys(("/v1/embeddings", "/v2/embed"), "Embeddings"),
    **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank"), "Rerank"),
}
_MODEL = re.compile(r"/v[12]/models/([^/:]+)")


class RestCalls:
    """The server's only ASGI middleware.

    - Answers HTTP 401 to requests without a token, except for `open_paths`; their body is not read.
    - Records all requests, refused ones included.
    - Releases what a request holds (`HELD` in its scope) once its answer has been sent.
    - Sends answers in pieces: each waits until the client has taken the one before, the end for the last.

    `observers` get the records; `names` are of all served models. Without `tokens` everyone is a client.
    """

    def __init__(
        self,
        app: ASGIApp,
        observers: Sequence[Observer],
        names: Names,
        tokens: Tokens | None = None,
        open_paths: Collection[str] = (),
    ):
        self._app, self._observers, self._names = app, observers, names
        self._tokens, self._open_paths = tokens, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, path = time.perf_counter(), scope["path"]
        name = match[1] if (match := _MODEL.match(path)) else ""
        record = RequestRecord(_method(path), "REST", name if name in self._names() else "")

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.seconds = time.perf_counter() - began  # without the time that its client takes to read it
                failed = _CODE_OF_HTTP.get(message["status"], grpc.StatusCode.INTERNAL)
                record.code = grpc.StatusCode.OK if message["status"] < 400 else failed
            elif len(body := message.get("body", b"")) > _SMALL_BYTES:
                for begin in range(0, len(body), PIECE_BYTES):
                    await send({**message, "body": body[begin : begin + PIECE_BYTES], "more_body": True})
                message = {**message, "body": b""}
            await send(message)

        values = [value.decode("latin-1") for key, value in scope.get("headers", ()) if key == b"authorization"]
        may_pass = self._tokens is None or path in self._open_paths or self._tokens.accept(values)
        with recorded(record, self._observers), contextlib.ExitStack() as scope[HELD]:
            await (self._app if may_pass else _refuse)(scope, receive, sent)


async def read_body(request: Request, limits: LimitSettings, reserve: Callable[[int], None]) -> bytes:
    """The body of a request, decompressed; HTTPException if it is too large, late or malformed.

    Memory of large bodies is reserved as they arrive.
    """
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip"):
        raise HTTPException(415, f"Content-Encoding {coding[:80]!a} is not supported; gzip is")
    too_large = HTTPException(413, f"the request body is larger than {limits.max_request_bytes} bytes")
    body, free = bytearray(), PIECE_BYTES
    try:
        with anyio.fail_after(limits.max_receive_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.max_request_bytes:
                    raise too_large
                if len(body) > free:
                    reserve(len(body) + PIECE_BYTES - free)
                    free = len(body) + PIECE_BYTES
    except TimeoutError:
        late = f"the request body did not arrive in {limits.max_receive_seconds:g} seconds"
        raise HTTPException(408, late, CLOSE) from None  # the remainder is not awaited
    if coding == "identity":
        return bytes(body)
    # As in TensorFlow Serving's HTTP server (net_http, evhttp_request.cc).
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, limits.max_request_bytes + 1)
    except zlib.error:
        raise HTTPException(400, "the request body is not gzip, contrary to its Content-Encoding") from None
    if len(unpacked) > limits.max_request_bytes:
        raise too_large
    if not unpacker.eof or unpacker.unused_data:
        raise HTTPException(400, "the request body is not one complete gzip stream")
    return unpacked


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    # Closed, because the client may still be sending a body that will not be read.
    headers = {"WWW-Authenticate": 'Bearer realm="bert-tfx"', **CLOSE}
    await JSONResponse({"error": REFUSAL}, 401, headers)(scope, receive, send)


def _method(path: str) -> str:
    if not path.startswith(("/v1/models/", "/v2/models/")):
        return _FURTHER.get(path, "")
    return next((method for end, method in _METHODS.items() if path.endswith(end)), "GetModelStatus")
