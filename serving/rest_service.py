"""TensorFlow Serving's REST v1 over an Inference: predict, classify, regress, status and metadata.

- `POST /v1/models/NAME[/versions/N | /labels/LABEL]:predict`, `:classify`, `:regress`
- `GET /v1/models/NAME[/versions/N | /labels/LABEL]`, and the same with `/metadata`

`GET /v1/models` is ours, TensorFlow Serving has no such path: what is served, in the words of its status.

    {"models": [{"name": "bert", "labels": {"stable": "3"}, "model_version_status": [{"version": "3", ...}]}]}

TensorFlow Serving's JSON does not say which version answered: here the header `X-Model-Version` of an answer does.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import anyio
import grpc
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving import errors, json_examples, json_tensors
from serving.grpc_service import SIGNATURE_DEF_FIELD
from serving.inference import Inference
from serving.logs import failure
from serving.model_manager import Target
from serving.model_store import VersionStatus
from serving.protos import ClassificationRequest, Input, ModelSpec, RegressionRequest, TensorInfo, types_pb2
from serving.request_queue import Call, QueueSettings

log = logging.getLogger(__name__)


VERSION_HEADER = "X-Model-Version"
# Beyond those that the queue admits: they are refused, or ask for the status.
_SPARE_THREADS = 16


def rest_app(inference: Inference, queue: QueueSettings) -> Starlette:
    """The ASGI application; a body above the guard's `max_request_bytes` is a 413, a late one a 408."""
    api = _RestApi(inference, queue)
    routes = [Route("/v1/models", api.models, methods=["GET"])]
    for model in ("/v1/models/{name}", "/v1/models/{name}/versions/{version:int}", "/v1/models/{name}/labels/{label}"):
        routes += [
            Route(f"{model}:predict", api.predict, methods=["POST"]),
            Route(f"{model}:classify", api.classify, methods=["POST"]),
            Route(f"{model}:regress", api.regress, methods=["POST"]),
            Route(f"{model}/metadata", api.metadata, methods=["GET"]),
            Route(model, api.status, methods=["GET"]),
        ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _malformed})


class _RestApi:
    def __init__(self, inference: Inference, queue: QueueSettings):
        self._inference = inference
        self._models = inference.models
        self._queue = queue

    async def predict(self, request: Request) -> Response:
        return await self._post(request, self._predict)

    async def classify(self, request: Request) -> Response:
        return await self._post(request, self._classify)

    async def regress(self, request: Request) -> Response:
        return await self._post(request, self._regress)

    async def _post(self, request: Request, work: Callable[[dict[str, Any], bytes, Call], Response]) -> Response:
        call, limits = Call(self._queue.rest_timeout_seconds), self._inference.guard.limits
        body = bytearray()
        try:
            with anyio.fail_after(limits.max_receive_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limits.max_request_bytes:
                        return _error(413, f"the request body is larger than {limits.max_request_bytes} bytes")
        except TimeoutError:
            answer = _error(408, f"the request body did not arrive in {limits.max_receive_seconds:g} seconds")
            answer.headers["Connection"] = "close"  # the rest of it is not waited for
            return answer
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        watch = asyncio.ensure_future(_cancel_when_gone(request, call))
        try:
            return await self._answer(lambda: work(request.path_params, bytes(body), call))
        finally:
            watch.cancel()

    async def status(self, request: Request) -> Response:
        return await self._answer(lambda: self._status(request.path_params))

    async def metadata(self, request: Request) -> Response:
        return await self._answer(lambda: self._metadata(request.path_params))

    async def models(self, request: Request) -> Response:
        return await self._answer(self._list_models)

    async def _answer(self, work: Callable[[], Response]) -> Response:
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._threads)
        except Exception as error:
            reason = errors.from_exception(error)
            if reason.code is grpc.StatusCode.INTERNAL:
                log.error("a request failed: %s", failure(error))
            return _error(reason.http_status, str(reason))

    @functools.cached_property
    def _threads(self) -> anyio.CapacityLimiter:
        # Starlette's own limit is 40: further requests would wait where no deadline ends them.
        return anyio.CapacityLimiter(self._queue.max_requests + _SPARE_THREADS)

    def _predict(self, path: dict[str, Any], body: bytes, call: Call) -> Response:
        request = json_tensors.parse_request(body)
        answer = self._inference.predict(
            _target(path),
            request.get("signature_name", ""),
            lambda signature: json_tensors.request_inputs(request, signature),
            call,
        )
        return _answered(json_tensors.answer(request, answer.outputs), answer.version)

    def _classify(self, path: dict[str, Any], body: bytes, call: Call) -> Response:
        spec, given = _example_request(path, body)
        with self._inference.on_examples(lambda _: _target(path), call) as examples:
            response = examples.classify(ClassificationRequest(model_spec=spec, input=given))
        return _answered(json_examples.classifications(response), response.model_spec.version.value)

    def _regress(self, path: dict[str, Any], body: bytes, call: Call) -> Response:
        spec, given = _example_request(path, body)
        with self._inference.on_examples(lambda _: _target(path), call) as examples:
            response = examples.regress(RegressionRequest(model_spec=spec, input=given))
        return _answered(json_examples.regressions(response), response.model_spec.version.value)

    def _status(self, path: dict[str, Any]) -> Response:
        found = self._models.status(_target(path))
        return JSONResponse({"model_version_status": [_status_json(status) for status in found]})

    def _list_models(self) -> Response:
        listed = [
            {
                "name": name,
                "labels": {label: str(version) for label, version in store.config.labels.items()},
                "model_version_status": [_status_json(status) for status in store.status().values()],
            }
            for name, store in self._models.stores.items()
        ]
        return JSONResponse({"models": listed})

    def _metadata(self, path: dict[str, Any]) -> Response:
        servable = self._inference.find(_target(path))
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


def _target(path: dict[str, Any]) -> Target:
    return Target(path["name"], path.get("version"), path.get("label", ""))


def _example_request(path: dict[str, Any], body: bytes) -> tuple[ModelSpec, Input]:
    request = json_tensors.parse_object(body)
    # The path's version stays out of the spec: it may be longer than an int64.
    spec = ModelSpec(name=path["name"], signature_name=request.get("signature_name", ""))
    return spec, json_examples.request_input(request)


def _answered(body: bytes, version: int) -> Response:
    return Response(body, media_type="application/json", headers={VERSION_HEADER: str(version)})


async def _cancel_when_gone(request: Request, call: Call) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    call.cancel()


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
