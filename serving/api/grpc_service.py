"""TensorFlow Serving's PredictionService and ModelService over an Inference."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np

from serving import errors, tensors
from serving.api.administration import Administration
from serving.api.inference import Inference
from serving.middleware.limits import LimitSettings, check_tensors
from serving.middleware.logs import failure
from serving.models.manager import ModelManager, Target
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


def add_services(inference: Inference, server: grpc.Server) -> None:
    """Register both services on `server`."""
    add_PredictionServiceServicer_to_server(PredictionService(inference), server)
    administration = Administration(inference.models, inference.policy.admin_base_paths)
    add_ModelServiceServicer_to_server(ModelService(inference.models, administration), server)


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
            answer = self._inference.predict(
                _target(spec),
                spec.signature_name,
                _inputs(request, self._inference.policy.limits),
                asked,
                request.output_filter,
            )
        response = PredictResponse()
        response.model_spec.name = answer.model
        response.model_spec.signature_name = answer.signature_name
        response.model_spec.version.value = answer.version
        for name, array in answer.outputs.items():
            response.outputs[name].CopyFrom(tensors.to_proto(array))
        return response

    @_answers
    def _on_examples(self, request: Any, context: grpc.ServicerContext) -> Any:
        with _request_context(context) as asked:
            return self._inference.on_examples(_target, asked).answer(request)

    Classify = Regress = MultiInference = _on_examples

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
        response = GetModelMetadataResponse()
        response.model_spec.name = servable.name
        response.model_spec.version.value = servable.version
        response.metadata[SIGNATURE_DEF_FIELD].Pack(SignatureDefMap(signature_def=servable.signature_defs))
        return response


class ModelService(ModelServiceServicer):
    """GetModelStatus and HandleReloadConfigRequest.

    A HandleReloadConfigRequest without a configuration makes the server read its file again, if it was started with
    one; TensorFlow Serving refuses it.
    """

    def __init__(self, models: ModelManager, administration: Administration):
        self._models = models
        self._administration = administration

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
        self._administration.reload(request, context)
        response = ReloadConfigResponse()
        response.status.SetInParent()  # OK
        return response


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
