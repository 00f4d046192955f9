"""TensorFlow Serving's REST v1 over an Inference: predict, classify, regress, status and metadata.

- `POST /v1/models/NAME[/versions/N | /labels/LABEL]:predict`, `:classify`, `:regress`
- `GET /v1/models/NAME[/versions/N | /labels/LABEL]`, and the same with `/metadata`

A body may be compressed (`Content-Encoding: gzip`); the limit applies to the decompressed size.

`GET /v1/models` lists the served models with their status, and as OpenAI does; TensorFlow Serving has no such path:

    {"models": [{"name": "bert", "labels": {"stable": "3"}, "model_version_status": [{"version": "3", ...}]}],
     "object": "list", "data": [{"id": "bert", "object": "model", ...}]}

An available version that says which token masks a word has it as `"mask"`, which TensorFlow Serving's status lacks.

`/v2` is KServe's V2 (`serving.api.kserve`), but `/v2/embed` and `/v2/rerank`, which are Cohere's.

`POST /v1/embeddings` is OpenAI's, `/v2/embed` Cohere's (`serving.api.embeddings`); `/v1/rerank`, `/v2/rerank` and
`/rerank` are in `serving.api.rerank`.

The header `X-Model-Version` gives the version that answered, which TensorFlow Serving's JSON lacks.

All is done in the loop of the connections, which waits for nothing; large bodies and answers, and calls on tf.Examples,
take threads. GET takes none: probes are answered under an overload, too.
"""

import asyncio
import inspect
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import anyio
import grpc
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving import errors
from serving.api import embeddings, json_tensors, kserve, rerank
from serving.api.grpc_service import SIGNATURE_DEF_FIELD
from serving.api.inference import Arrays, Inference
from serving.middleware.request_log import failure
from serving.middleware.rest_calls import CLOSE, HELD, read_body
from serving.models.manager import Target
from serving.models.servable import Servable
from serving.models.store import VersionStatus
from serving.protos import ClassificationRequest, ModelSpec, RegressionRequest, SignatureDef, TensorInfo, types_pb2
from serving.scheduling.admission import QueueSettings, RequestContext

log = logging.getLogger(__name__)

T = TypeVar("T")
VERSION_HEADER = "X-Model-Version"
# Parameters of the path, body, context -> answer, or its coroutine.
_Work: TypeAlias = Callable[..., Response | Awaitable[Response]]
_ToError: TypeAlias = Callable[[int, str], Response]  # from status and message
# Reading or writing as many bytes keeps the loop for less than a millisecond.
_SMALL_BYTES = 32 * 1024
# Threads of a port beyond the queue's capacity: they refuse requests, and gRPC's answer status.
SPARE_THREADS = 16


class _Version(IntegerConvertor):
    regex = "[0-9]{1,99}"  # Python reads no number of more than 4,300 digits


register_url_convertor("version", _Version())


def rest_app(inference: Inference, queue: QueueSettings, further: Sequence[Route] = ()) -> Starlette:
    """ASGI application; a body larger than `max_request_bytes` is a 413, a late one a 408."""
    api = _RestApi(inference, queue)
    further_work: dict[str, tuple[_Work, _ToError]] = {
        "/v1/embeddings": (partial(api.embeddings, is_cohere=False), embeddings.error),
        "/v2/embed": (partial(api.embeddings, is_cohere=True), embeddings.error),
        **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank"), (api.rerank, rerank.error)),
    }
    routes = [_get("/v1/models", api.list_models)]
    for path, (work, to_error) in further_work.items():
        routes.append(Route(path, partial(api.post, work=work, to_error=to_error), methods=["POST"]))
    posted: dict[str, _Work] = {
        "predict": api.predict,
        "classify": partial(api.on_examples, kind=ClassificationRequest, to_json=json_tensors.classifications),
        "regress": partial(api.on_examples, kind=RegressionRequest, to_json=json_tensors.regressions),
    }
    for model in (
        "/v1/models/{name}",
        "/v1/models/{name}/versions/{version:version}",
        "/v1/models/{name}/labels/{label}",
    ):
        routes += [
            Route(f"{model}:{method}", partial(api.post, work=work), methods=["POST"])
            for method, work in posted.items()
        ]
        routes += [_get(f"{model}/metadata", api.metadata), _get(model, api.status)]
    for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version:version}"):
        routes += [_get(model, api.v2_model), _get(f"{model}/ready", api.v2_model_ready)]
        routes.append(Route(f"{model}/infer", api.infer, methods=["POST"]))
    routes += [_get("/v2", lambda path: JSONResponse(kserve.SERVER)), _get("/v2/health/{state:path}", api.v2_health)]
    app = Starlette(routes=[*routes, *further], exception_handlers={HTTPException: _malformed})
    app.router.redirect_slashes = False  # it redirects to the host that the client names
    return app


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)


class _RestApi:
    def __init__(self, inference: Inference, queue: QueueSettings):
        self._inference, self._models, self._queue = inference, inference.models, queue
        self._began = int(time.time())

    async def post(self, request: Request, work: _Work, to_error: _ToError = _error) -> Response:
        """Answer with `work`, a coroutine or in a thread, from the path's parameters, the body and the context."""
        context = RequestContext(self._queue.rest_timeout_seconds)
        request.scope[HELD].callback(context.held.close)
        try:
            body = await read_body(request, self._inference.limits, partial(self._inference.reserve, context))
        except ClientDisconnect:
            return Response(status_code=400)  # never read
        except errors.ServingError as error:
            answer = _refused(error, to_error)
            answer.headers.update(CLOSE)  # the remainder is not awaited
            return answer
        except HTTPException as error:
            answer = to_error(error.status_code, error.detail)
            answer.headers.update(error.headers or {})
            return answer
        context.size = len(body)
        watch = asyncio.ensure_future(_cancel_when_gone(request, context))
        try:
            size = 0 if inspect.iscoroutinefunction(work) else sys.maxsize
            answered = await self._near(size, work, request.path_params, body, context)
            return await answered if inspect.isawaitable(answered) else answered
        except Exception as error:
            return _refused(error, to_error)
        finally:
            watch.cancel()

    async def _near(self, size: int, work: Callable[..., T], *arguments: Any) -> T:
        """Do what reads or writes so many bytes: little here, much in a thread."""
        if size <= _SMALL_BYTES:
            return work(*arguments)
        return await anyio.to_thread.run_sync(partial(work, *arguments), limiter=self._threads)

    @cached_property
    def _threads(self) -> anyio.CapacityLimiter:
        # Starlette's own limit is 40 threads: further requests would wait without a deadline.
        return anyio.CapacityLimiter(self._queue.max_requests + SPARE_THREADS)

    async def predict(self, path: dict[str, Any], body: bytes, context: RequestContext) -> Response:
        request = await self._near(len(body), json_tensors.parse_request, body)

        def answer(servable: Servable, outputs: Arrays) -> Response:
            return _answered(json_tensors.answer(request, outputs), servable.version)

        return await self._predict(
            _target(path), request.get("signature_name", ""), self._read(request), context, answer
        )

    async def embeddings(self, path: dict[str, Any], body: bytes, context: RequestContext, is_cohere: bool) -> Response:
        target, request = await self._near(len(body), embeddings.parse_request, body, is_cohere)
        embeddings.check(target.name, self._inference.find(target).signature_defs)

        def answer(servable: Servable, outputs: Arrays) -> Response:
            response = _answered(embeddings.answer(request, outputs), servable.version)
            response.headers.update(embeddings.headers(request, outputs, servable.dimensions))
            return response

        # All types together take two floats' bytes.
        wanted = embeddings.OUTPUTS, json_tensors.GROWTH * (1 + (len(request["types"]) > 1))
        return await self._predict(target, embeddings.SIGNATURE, self._read(request), context, answer, *wanted)

    async def rerank(self, path: dict[str, Any], body: bytes, context: RequestContext) -> Response:
        request = await self._near(len(body), rerank.parse_request, body, self._inference.limits)

        def answer(servable: Servable, outputs: Arrays) -> Response:
            return _answered(rerank.answer(request, servable.name, outputs), servable.version)

        target = rerank.target_of(request, self._models)
        return await self._predict(target, "", self._read(request), context, answer, rerank.OUTPUTS)

    def _read(self, request: dict[str, Any]) -> Callable[[SignatureDef], Arrays]:
        return partial(json_tensors.request_inputs, request, limits=self._inference.limits)

    async def _predict(
        self,
        target: Target,
        signature_name: str,
        read_inputs: Callable[[SignatureDef], Arrays],
        context: RequestContext,
        to_answer: Callable[[Servable, Arrays], Response],
        output_filter: Sequence[str] = (),
        growth: int = json_tensors.GROWTH,
    ) -> Response:
        asked = target, signature_name, read_inputs, context, output_filter, growth
        servable, job = await self._near(context.size, self._inference.prepare, *asked)
        outputs = await self._inference.run_in_loop(job, context)
        return await self._near(job.answer_bytes, to_answer, servable, outputs)

    async def infer(self, request: Request) -> Response:
        length = request.headers.get(kserve.LENGTH_HEADER)

        async def work(path: dict[str, Any], body: bytes, context: RequestContext) -> Response:
            asked = await self._near(len(body), kserve.InferRequest, body, length)

            def answer(servable: Servable, outputs: Arrays) -> Response:
                content, headers = asked.answer(servable, outputs)
                return Response(content, headers={**headers, VERSION_HEADER: str(servable.version)})

            read = partial(asked.arrays, limits=self._inference.limits)
            return await self._predict(_target(path), asked.signature_name, read, context, answer, asked.output_names)

        return await self.post(request, work)

    def v2_model(self, path: dict[str, Any]) -> Response:
        servable = self._inference.find(_target(path))
        return JSONResponse(kserve.metadata(servable, self._models.stores[servable.name].versions))

    def v2_model_ready(self, path: dict[str, Any]) -> Response:
        self._inference.find(_target(path))
        return JSONResponse({"name": path["name"], "ready": True})

    def v2_health(self, path: dict[str, Any]) -> Response:
        if path["state"] not in ("live", "ready"):
            raise errors.not_found("/v2/health/live or /v2/health/ready")
        ready = path["state"] == "live" or all(store.newest is not None for store in self._models.stores.values())
        return JSONResponse({path["state"]: ready}, 200 if ready else 503)

    def on_examples(
        self, path: dict[str, Any], body: bytes, context: RequestContext, kind: Any, to_json: Callable[[Any], bytes]
    ) -> Response:
        request = json_tensors.parse_object(body)
        # The path's version is not in the spec: it may be too large for an int64.
        spec = ModelSpec(name=path["name"], signature_name=request.get("signature_name", ""))
        given = kind(model_spec=spec, input=json_tensors.examples_input(request, self._inference.limits))
        answer = self._inference.on_examples(given, lambda _: _target(path), context)
        return _answered(to_json(answer), answer.model_spec.version.value)

    def status(self, path: dict[str, Any]) -> Response:
        statuses = self._models.status(_target(path))
        return JSONResponse({"model_version_status": [_status_json(status) for status in statuses]})

    def list_models(self, path: dict[str, Any]) -> Response:
        listed = [
            {
                "name": name,
                "labels": {label: str(version) for label, version in store.config.labels.items()},
                "model_version_status": [
                    _status_json(status, store.get(number)) for number, status in store.status().items()
                ],
            }
            for name, store in self._models.stores.items()
        ]
        data = [
            {"id": name, "object": "model", "created": self._began, "owned_by": "bert-tfx"}
            for name in self._models.stores
        ]
        return JSONResponse({"models": listed, "object": "list", "data": data})

    def metadata(self, path: dict[str, Any]) -> Response:
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
        # The map's only field is named like the metadata field: TensorFlow Serving nests them, too.
        metadata = {SIGNATURE_DEF_FIELD: {"signature_def": signature_defs}}
        return JSONResponse({"model_spec": spec, "metadata": metadata})


def _get(path: str, work: Callable[[dict[str, Any]], Response]) -> Route:
    """A route that answers in the thread of the connections, at once, what is known without computing."""

    async def answer(request: Request) -> Response:
        try:
            return work(request.path_params)
        except Exception as error:
            return _refused(error, _error)

    return Route(path, answer, methods=["GET"])


def _target(path: dict[str, Any]) -> Target:
    return Target(path["name"], path.get("version"), path.get("label", ""))


def _answered(body: bytes, version: int) -> Response:
    return Response(body, media_type="application/json", headers={VERSION_HEADER: str(version)})


async def _cancel_when_gone(request: Request, context: RequestContext) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    context.cancel()


def _refused(error: Exception, to_error: _ToError) -> Response:
    reason = errors.from_exception(error)
    if reason.code is grpc.StatusCode.INTERNAL:
        log.error("a request failed: %s", failure(error))
    answer = to_error(reason.http_status, str(reason))
    if reason.code is grpc.StatusCode.UNAVAILABLE:
        answer.headers.update(CLOSE)  # so that the client retries on another server
    return answer


def _malformed(request: Request, error: Exception) -> Response:
    # As in TensorFlow Serving: an unknown path below /v1/ is a bad request, any other is not found.
    under_api = request.url.path.startswith("/v1/")
    return _error(400 if under_api else 404, f"Malformed request: {request.method} {request.url.path}")


# 64-bit integers are strings in protobuf's JSON.


def _status_json(status: VersionStatus, servable: Servable | None = None) -> dict[str, Any]:
    error = {"error_code": status.error_code.name, "error_message": status.error_message}
    mask = {"mask": servable.mask} if servable and servable.mask else {}
    return {"version": str(status.version), "state": status.state, "status": error, **mask}


def _info_json(info: TensorInfo) -> dict[str, Any]:
    dims = [{"size": str(dim.size), "name": dim.name} for dim in info.tensor_shape.dim]
    return {
        "dtype": types_pb2.DataType.Name(info.dtype),
        "tensor_shape": {"dim": dims, "unknown_rank": info.tensor_shape.unknown_rank},
        "name": info.name,
    }
