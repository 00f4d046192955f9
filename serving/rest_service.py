"""TensorFlow Serving's REST v1 over a ModelStore: predict, classify, regress, status and metadata.

- `POST /v1/models/NAME[/versions/N]:predict`, `:classify`, `:regress`
- `GET /v1/models/NAME[/versions/N]` and `GET /v1/models/NAME[/versions/N]/metadata`
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving import calls, errors, json_examples, json_tensors
from serving.classify import ExampleCalls
from serving.grpc_service import SIGNATURE_DEF_FIELD
from serving.guard import Guard
from serving.logs import failure
from serving.model_store import ModelStore, VersionStatus
from serving.protos import ClassificationRequest, Input, ModelSpec, RegressionRequest, TensorInfo, types_pb2
from serving.servable import Servable

log = logging.getLogger(__name__)


def rest_app(store: ModelStore, guard: Guard) -> Starlette:
    """The ASGI application; a body above the guard's `max_request_bytes` is a 413."""
    api = _RestApi(store, guard)
    routes = []
    for model in ("/v1/models/{name}", "/v1/models/{name}/versions/{version:int}"):
        routes += [
            Route(f"{model}:predict", api.predict, methods=["POST"]),
            Route(f"{model}:classify", api.classify, methods=["POST"]),
            Route(f"{model}:regress", api.regress, methods=["POST"]),
            Route(f"{model}/metadata", api.metadata, methods=["GET"]),
            Route(model, api.status, methods=["GET"]),
        ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _malformed})


class _RestApi:
    def __init__(self, store: ModelStore, guard: Guard):
        self._store = store
        self._guard = guard

    async def predict(self, request: Request) -> Response:
        return await self._post(request, self._predict)

    async def classify(self, request: Request) -> Response:
        return await self._post(request, self._classify)

    async def regress(self, request: Request) -> Response:
        return await self._post(request, self._regress)

    async def _post(self, request: Request, work: Callable[[dict[str, Any], bytes], bytes]) -> Response:
        most = self._guard.limits.max_request_bytes
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    return _error(413, f"the request body is larger than {most} bytes")
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        return await _answer(lambda: Response(work(request.path_params, bytes(body)), media_type="application/json"))

    async def status(self, request: Request) -> Response:
        return await _answer(lambda: self._status(request.path_params))

    async def metadata(self, request: Request) -> Response:
        return await _answer(lambda: self._metadata(request.path_params))

    def _predict(self, path: dict[str, Any], body: bytes) -> bytes:
        request = json_tensors.parse_request(body)
        signature_name = request.get("signature_name", "")
        servable = self._get(path, signature_name)
        inputs = json_tensors.request_inputs(request, servable.signature(signature_name))
        return json_tensors.answer(request, self._run(servable, signature_name, inputs))

    def _classify(self, path: dict[str, Any], body: bytes) -> bytes:
        spec, given, examples = self._examples(path, body)
        response = examples.classify(ClassificationRequest(model_spec=spec, input=given))
        return json_examples.classifications(response)

    def _regress(self, path: dict[str, Any], body: bytes) -> bytes:
        spec, given, examples = self._examples(path, body)
        return json_examples.regressions(examples.regress(RegressionRequest(model_spec=spec, input=given)))

    def _examples(self, path: dict[str, Any], body: bytes) -> tuple[ModelSpec, Input, ExampleCalls]:
        request = json_tensors.parse_object(body)
        spec = ModelSpec(name=path["name"], signature_name=request.get("signature_name", ""))
        servable = self._get(path, spec.signature_name)
        # The path's version stays out of the spec: it may be longer than an int64.
        return spec, json_examples.request_input(request), ExampleCalls(lambda _: servable, self._run)

    def _run(self, servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._guard.check(servable, signature_name, inputs)
        return servable.predict(signature_name, inputs)

    def _get(self, path: dict[str, Any], signature_name: str = "") -> Servable:
        servable = self._store.get(path["name"], path.get("version"))
        calls.describe(servable, signature_name)
        return servable

    def _status(self, path: dict[str, Any]) -> Response:
        found = self._store.status(path["name"], path.get("version"))
        return JSONResponse({"model_version_status": [_status_json(status) for status in found]})

    def _metadata(self, path: dict[str, Any]) -> Response:
        servable = self._get(path)
        signature_defs = {
            name: {
                "inputs": {key: _info_json(info) for key, info in signature.inputs.items()},
                "outputs": {key: _info_json(info) for key, info in signature.outputs.items()},
                "method_name": signature.method_name,
            }
            for name, signature in servable.signature_defs.items()
        }
        spec = {"name": servable.name, "signature_name": "", "version": str(servable.version)}
        # The map's one field has the name of the metadata field: TensorFlow Serving nests them, too.
        metadata = {SIGNATURE_DEF_FIELD: {"signature_def": signature_defs}}
        return JSONResponse({"model_spec": spec, "metadata": metadata})


async def _answer(work: Callable[[], Response]) -> Response:
    try:
        return await run_in_threadpool(work)
    except Exception as error:
        reason = errors.from_exception(error)
        if reason.code is grpc.StatusCode.INTERNAL:
            log.error("a request failed: %s", failure(error))
        return _error(reason.http_status, str(reason))


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


def _malformed(request: Request, error: Exception) -> Response:
    # As TensorFlow Serving: what is under /v1/ and fits no route is a bad request, the rest is not there.
    under_api = request.url.path.startswith("/v1/")
    return _error(400 if under_api else 404, f"Malformed request: {request.method} {request.url.path}")


# 64-bit integers are strings in protobuf's JSON.


def _status_json(status: VersionStatus) -> dict[str, Any]:
    error = {"error_code": status.error_code.name, "error_message": status.error_message}
    return {"version": str(status.version), "state": status.state, "status": error}


def _info_json(info: TensorInfo) -> dict[str, Any]:
    dims = [{"size": str(dim.size), "name": dim.name} for dim in info.tensor_shape.dim]
    return {
        "dtype": types_pb2.DataType.Name(info.dtype),
        "tensor_shape": {"dim": dims, "unknown_rank": info.tensor_shape.unknown_rank},
        "name": info.name,
    }
