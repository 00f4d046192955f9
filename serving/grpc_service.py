"""TensorFlow Serving's PredictionService and ModelService over a ModelStore."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from serving import calls, errors, tensors
from serving.classify import ExampleCalls
from serving.guard import Guard
from serving.limits import check_shapes
from serving.logs import failure
from serving.model_store import ModelStore
from serving.protos import (
    ClassificationRequest,
    ClassificationResponse,
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelServiceServicer,
    ModelSpec,
    MultiInferenceRequest,
    MultiInferenceResponse,
    PredictionServiceServicer,
    PredictRequest,
    PredictResponse,
    RegressionRequest,
    RegressionResponse,
    SignatureDefMap,
    add_ModelServiceServicer_to_server,
    add_PredictionServiceServicer_to_server,
)
from serving.servable import DEFAULT_SIGNATURE, Servable

log = logging.getLogger(__name__)

SIGNATURE_DEF_FIELD = "signature_def"


def add_services(store: ModelStore, server: grpc.Server, guard: Guard) -> None:
    """Registers both services on `server`."""
    add_PredictionServiceServicer_to_server(PredictionService(store, guard), server)
    add_ModelServiceServicer_to_server(ModelService(store), server)


def _answers(method: Callable[..., Any]) -> Callable[..., Any]:
    """Turns what `method` raises into the call's status: no request may reach the client as UNKNOWN."""

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request)
        except Exception as error:
            reason = errors.from_exception(error)
            if reason.code is grpc.StatusCode.INTERNAL:
                log.error("%s failed: %s", method.__name__, failure(error))
        return context.abort(reason.code, str(reason))

    return call


def _unimplemented(self: Any, request: Any, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "not implemented here; call Predict with a signature_name")


class PredictionService(PredictionServiceServicer):
    """Predict, the calls on tf.Examples, and GetModelMetadata."""

    def __init__(self, store: ModelStore, guard: Guard):
        self._store = store
        self._guard = guard
        self._examples = ExampleCalls(self._get, self._predict)

    def _get(self, spec: ModelSpec) -> Servable:
        servable = self._store.get(spec.name, _version(spec))
        calls.describe(servable, spec.signature_name)
        return servable

    def _predict(
        self, servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        self._guard.check(servable, signature_name, inputs)
        return servable.predict(signature_name, inputs, outputs)

    @_answers
    def Classify(self, request: ClassificationRequest) -> ClassificationResponse:
        return self._examples.classify(request)

    @_answers
    def Regress(self, request: RegressionRequest) -> RegressionResponse:
        return self._examples.regress(request)

    @_answers
    def MultiInference(self, request: MultiInferenceRequest) -> MultiInferenceResponse:
        return self._examples.multi_inference(request)

    @_answers
    def Predict(self, request: PredictRequest) -> PredictResponse:
        spec = request.model_spec
        servable = self._get(spec)
        check_shapes(request.inputs, self._guard.limits)
        inputs = {}
        for name, proto in request.inputs.items():
            try:
                inputs[name] = tensors.to_array(proto)
            except ValueError as error:
                raise errors.invalid(f"tensor parsing error: {name}: {error}") from error
        outputs = self._predict(servable, spec.signature_name, inputs, request.output_filter)
        response = PredictResponse()
        response.model_spec.name = servable.name
        response.model_spec.signature_name = spec.signature_name or DEFAULT_SIGNATURE
        response.model_spec.version.value = servable.version
        for name, array in outputs.items():
            response.outputs[name].CopyFrom(tensors.to_proto(array))
        return response

    @_answers
    def GetModelMetadata(self, request: GetModelMetadataRequest) -> GetModelMetadataResponse:
        if not request.HasField("model_spec"):
            raise errors.invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise errors.invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != SIGNATURE_DEF_FIELD:
                raise errors.invalid(f"Metadata field {field} is not supported; {SIGNATURE_DEF_FIELD} is")
        servable = self._get(request.model_spec)
        response = GetModelMetadataResponse()
        response.model_spec.name = servable.name
        response.model_spec.version.value = servable.version
        response.metadata[SIGNATURE_DEF_FIELD].Pack(SignatureDefMap(signature_def=servable.signature_defs))
        return response


class ModelService(ModelServiceServicer):
    """GetModelStatus; HandleReloadConfigRequest is UNIMPLEMENTED."""

    HandleReloadConfigRequest = _unimplemented

    def __init__(self, store: ModelStore):
        self._store = store

    @_answers
    def GetModelStatus(self, request: GetModelStatusRequest) -> GetModelStatusResponse:
        if not request.HasField("model_spec"):
            raise errors.invalid("Missing ModelSpec")
        found = self._store.status(request.model_spec.name, _version(request.model_spec))
        return GetModelStatusResponse(model_version_status=[status.to_proto() for status in found])


def _version(spec: ModelSpec) -> int | None:
    if spec.WhichOneof("version_choice") == "version_label":
        raise errors.invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.version.value if spec.HasField("version") else None
