"""TensorFlow Serving's PredictionService and ModelService over an Inference."""

import contextlib
import functools
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf import text_format

from serving import errors, tensors
from serving.api.inference import Inference
from serving.middleware.limits import LimitSettings, check_tensors
from serving.middleware.request_log import failure
from serving.middleware.security import authorization
from serving.models.config import ModelConfig, model_configs
from serving.models.manager import ModelManager, Target
from serving.models.servable import DEFAULT_SIGNATURE
from serving.protos import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelServiceServicer,
    ModelSpec,
    PredictionServiceServicer,
    PredictRequest,
    PredictResponse,
    ReloadConfigRequest,
    ReloadConfigResponse,
    SignatureDef,
    SignatureDefMap,
    add_ModelServiceServicer_to_server,
    add_PredictionServiceServicer_to_server,
)
from serving.scheduling.admission import RequestContext

log = logging.getLogger(__name__)

SIGNATURE_DEF_FIELD = "signature_def"
_LOGGED_CHARS = 2000


def add_services(inference: Inference, server: grpc.Server, admin_base_paths: Sequence[str]) -> None:
    """Register both services on `server`."""
    add_PredictionServiceServicer_to_server(PredictionService(inference), server)
    add_ModelServiceServicer_to_server(ModelService(inference.models, admin_base_paths), server)


def _answers(method: Callable[..., Any]) -> Callable[..., Any]:
    """Convert errors of `method` to the call's status: no request may end as UNKNOWN."""

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except Exception as error:
            reason = errors.from_exception(error)
            if reason.code is grpc.StatusCode.INTERNAL:
                log.error("%s failed: %s", method.__name__, failure(error))
        return context.abort(reason.code, str(reason))

    return call


class PredictionService(PredictionServiceServicer):
    """Predict, the methods on tf.Examples, and GetModelMetadata."""

    def __init__(self, inference: Inference):
        self._inference = inference

    @_answers
    def Predict(self, request: PredictRequest, context: grpc.ServicerContext) -> PredictResponse:
        spec = request.model_spec
        with _request_context(context) as asked:
            inputs = _inputs(request, self._inference.limits)
            servable, job = self._inference.prepare(
                _target(spec), spec.signature_name, inputs, asked, request.output_filter
            )
            outputs = self._inference.run(job, asked)
        signature_name = spec.signature_name or DEFAULT_SIGNATURE
        answered = ModelSpec(name=servable.name, version={"value": servable.version}, signature_name=signature_name)
        response = PredictResponse(model_spec=answered)
        for name, array in outputs.items():
            response.outputs[name].CopyFrom(tensors.to_proto(array))
        return response

    @_answers
    def _on_examples(self, request: Any, context: grpc.ServicerContext) -> Any:
        with _request_context(context) as asked:
            return self._inference.on_examples(request, _target, asked)

    Classify = Regress = _on_examples

    @_answers
    def GetModelMetadata(
        self, request: GetModelMetadataRequest, context: grpc.ServicerContext
    ) -> GetModelMetadataResponse:
        if not request.HasField("model_spec"):
            raise errors.invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise errors.invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != SIGNATURE_DEF_FIELD:
                raise errors.invalid(f"Metadata field {field} is not supported; {SIGNATURE_DEF_FIELD} is")
        servable = self._inference.find(_target(request.model_spec))
        spec = ModelSpec(name=servable.name, version={"value": servable.version})
        response = GetModelMetadataResponse(model_spec=spec)
        response.metadata[SIGNATURE_DEF_FIELD].Pack(SignatureDefMap(signature_def=servable.signature_defs))
        return response


class ModelService(ModelServiceServicer):
    """GetModelStatus and HandleReloadConfigRequest.

    A HandleReloadConfigRequest without a list makes the server read its file again, if it was started with one;
    TensorFlow Serving refuses it. A list may name models that are already served, at their current base path, and
    models below `base_paths`. Other paths are refused because a SavedModel is a program: administrators must not be
    able to run any code. Each call is logged with its caller and content.
    """

    def __init__(self, models: ModelManager, base_paths: Sequence[str]):
        self._models = models
        self._base_paths = [Path(path).resolve() for path in base_paths]

    @_answers
    def GetModelStatus(self, request: GetModelStatusRequest, context: grpc.ServicerContext) -> GetModelStatusResponse:
        if not request.HasField("model_spec"):
            raise errors.invalid("Missing ModelSpec")
        statuses = self._models.status(_target(request.model_spec))
        return GetModelStatusResponse(model_version_status=[status.to_proto() for status in statuses])

    @_answers
    def HandleReloadConfigRequest(
        self, request: ReloadConfigRequest, context: grpc.ServicerContext
    ) -> ReloadConfigResponse:
        asked = text_format.MessageToString(request.config, as_one_line=True)[:_LOGGED_CHARS] or "the file, again"
        caller = _caller(context)
        try:
            configs = model_configs(request.config) if request.HasField("config") else None
            for config in configs or ():
                self._check_path(config)
            self._models.reload(configs)
        except errors.ServingError as error:
            log.warning("%s was refused to change the models to: %s: %s", caller, asked, error)
            raise
        log.warning("%s changed the models to: %s", caller, asked)
        return ReloadConfigResponse(status={})  # OK

    def _check_path(self, config: ModelConfig) -> None:
        # With links and `..` resolved; otherwise a path below an allowed folder could lead anywhere.
        path = config.base_path.resolve()
        served = {store.base_path.resolve() for store in self._models.stores.values()}
        if path not in served and not any(path.is_relative_to(allowed) for allowed in self._base_paths):
            raise errors.ServingError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"model {config.name}: {config.base_path} is not below an allowed folder"
                " (--admin-base-path of the server)",
            )


def _caller(context: grpc.ServicerContext) -> str:
    """Address, name in the certificate (if any), and the beginning of the token's SHA-256."""
    names = b", ".join(context.auth_context().get("x509_common_name", ())).decode(errors="backslashreplace")
    token = "".join(authorization(context.invocation_metadata())).partition(" ")[2].strip()
    certificate = f" with the certificate of {names!r}" if names else ""
    return f"{context.peer()}{certificate} and token {hashlib.sha256(token.encode()).hexdigest()[:8]}"


def _target(spec: ModelSpec) -> Target:
    return Target(spec.name, spec.version.value if spec.HasField("version") else None, spec.version_label)


def _inputs(request: PredictRequest, limits: LimitSettings) -> Callable[[SignatureDef], dict[str, np.ndarray]]:
    def read(signature: SignatureDef) -> dict[str, np.ndarray]:
        check_tensors(request.inputs, limits)
        inputs = {}
        for name, proto in request.inputs.items():
            try:
                inputs[name] = tensors.to_array(proto)
            except ValueError as error:
                raise errors.invalid(f"tensor parsing error: {name}: {error}") from error
        return inputs

    return read


@contextlib.contextmanager
def _request_context(context: grpc.ServicerContext) -> Iterator[RequestContext]:
    """Context of a call; what it holds is released once the call is over, its answer sent."""
    request_context = RequestContext(context.time_remaining())
    if not context.add_callback(request_context.cancel):
        request_context.cancel()
    try:
        yield request_context
    finally:
        if not context.add_callback(request_context.held.close):
            request_context.held.close()
