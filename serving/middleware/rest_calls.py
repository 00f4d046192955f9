"""REST requests on their way to the application: tokens, a record of each, answers in pieces."""

import contextlib
import re
import time
from collections.abc import Collection, Sequence

import grpc
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import HTTP_STATUS
from serving.middleware.limits import PIECE_BYTES
from serving.middleware.request_log import Names, Observer, RequestRecord, recorded
from serving.middleware.security import REFUSAL, Tokens

HELD = "bert_tfx.held"
# HTTP has fewer codes than gRPC: each status maps to its first code.
_CODE_OF_HTTP = {status: code for code, status in reversed(HTTP_STATUS.items())} | {
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_METHODS = {":predict": "Predict", ":classify": "Classify", ":regress": "Regress", "/metadata": "GetModelMetadata"}
_FURTHER = {
    **dict.fromkeys(("/v1/embeddings", "/v2/embed"), "Embeddings"),
    **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank"), "Rerank"),
}
_MODEL = re.compile(r"/v1/models/([^/:]+)")


class RestCalls:
    """The server's only ASGI middleware.

    - Answers HTTP 401 to requests without a token, except for `open_paths`; their body is not read.
    - Records all requests, refused ones included.
    - Releases what a request holds (`HELD` in its scope) once its answer has been sent.
    - Sends answers in pieces: each waits until the client has taken the one before, the end for the last.

    Args:
        observers: get the records.
        names: of all served models.
        tokens: None allows everyone.
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
            elif body := message.get("body", b""):
                for begin in range(0, len(body), PIECE_BYTES):
                    await send({**message, "body": body[begin : begin + PIECE_BYTES], "more_body": True})
                message = {**message, "body": b""}
            await send(message)

        with recorded(record, self._observers), contextlib.ExitStack() as scope[HELD]:
            await (self._app if self._may_pass(scope) else _refuse)(scope, receive, sent)

    def _may_pass(self, scope: Scope) -> bool:
        values = [value.decode("latin-1") for key, value in scope.get("headers", ()) if key == b"authorization"]
        return self._tokens is None or scope["path"] in self._open_paths or self._tokens.accept(values)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    # Closed, because the client may still be sending a body that will not be read.
    headers = {"WWW-Authenticate": 'Bearer realm="bert-tfx"', "Connection": "close"}
    await JSONResponse({"error": REFUSAL}, 401, headers)(scope, receive, send)


def _method(path: str) -> str:
    if not path.startswith("/v1/models/"):
        return _FURTHER.get(path, "")
    return next((method for end, method in _METHODS.items() if path.endswith(end)), "GetModelStatus")
