"""TensorFlow Serving's methods on tf.Examples: Classify, Regress and MultiInference.

They take a signature whose `method_name` is `tensorflow/serving/classify` or `.../regress`, with one input, `inputs`
(serialized tf.Examples, string[B]), and these outputs:

    classify    classes string[B, L], scores float[B, L]: one or both
    regress     outputs float[B] or float[B, 1]

Codes and messages are TensorFlow Serving's (classifier.cc, regressor.cc, multi_inference.cc, util.cc), including
MultiInference's "Input tensor must be the same for all Signatures": signatures written by `tf.saved_model.save` have
separate input tensors, so only one signature of such a model can be requested; estimators and
`tf.compat.v1.saved_model.Builder` share the tensor.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np

from serving import errors, tensors
from serving.middleware.limits import LimitSettings, check_examples, check_rows
from serving.models.servable import DEFAULT_SIGNATURE, Servable
from serving.protos import (
    ClassificationRequest,
    ClassificationResponse,
    ClassificationResult,
    InferenceResult,
    Input,
    ModelSpec,
    MultiInferenceRequest,
    MultiInferenceResponse,
    RegressionResponse,
    RegressionResult,
    SignatureDef,
)

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"
_INPUTS, _CLASSES, _SCORES, _OUTPUTS = "inputs", "classes", "scores", "outputs"
# Servable, name of a signature, inputs -> outputs.
Predict = Callable[[Servable, str, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
_KIND = {CLASSIFY: "classification", REGRESS: "regression"}


def answer(request: Any, get: Callable[[ModelSpec], Servable], predict: Predict, limits: LimitSettings) -> Any:
    """The response to a Classification-, Regression- or MultiInferenceRequest.

    Args:
        get: servable for a model_spec; called once, so that one version answers all of the request.
        predict: outputs of one of its signatures.
    """
    if isinstance(request, MultiInferenceRequest):
        return _multi_inference(request, get, predict, limits)
    is_classify = isinstance(request, ClassificationRequest)
    method, response = (CLASSIFY, ClassificationResponse()) if is_classify else (REGRESS, RegressionResponse())
    if not request.HasField("model_spec"):
        raise errors.invalid("Missing ModelSpec")
    servable = get(request.model_spec)
    name = _name(request.model_spec)
    if name not in servable.signature_defs:
        raise errors.invalid(f"No signature was found with the name: {name}")
    _check_signature(servable.signature_defs[name], method)
    examples = serialized_examples(request.input, limits)
    response.result.CopyFrom(_result(predict, servable, name, method, examples))
    _fill_spec(response.model_spec, servable, request.model_spec)
    return response


def _multi_inference(
    request: MultiInferenceRequest, get: Callable[[ModelSpec], Servable], predict: Predict, limits: LimitSettings
) -> MultiInferenceResponse:
    """Results of several signatures of one model on the same Examples."""
    servable = get(request.tasks[0].model_spec if request.tasks else ModelSpec())
    _check_tasks(servable, request)
    examples = serialized_examples(request.input, limits)
    response = MultiInferenceResponse()
    for task in request.tasks:
        result: InferenceResult = response.results.add()
        field = result.classification_result if task.method_name == CLASSIFY else result.regression_result
        field.CopyFrom(_result(predict, servable, _name(task.model_spec), task.method_name, examples))
        _fill_spec(result.model_spec, servable, task.model_spec)
    return response


def _result(
    predict: Predict, servable: Servable, name: str, method: str, examples: np.ndarray
) -> ClassificationResult | RegressionResult:
    outputs = predict(servable, name, {_INPUTS: examples})
    if method == CLASSIFY:
        return _classifications(servable.signature_defs[name], outputs, len(examples))
    return _regressions(outputs, len(examples))


def serialized_examples(request_input: Input, limits: LimitSettings) -> np.ndarray:
    """Examples of a request, bytes[B], each merged with its context; INVALID_ARGUMENT if empty or too large."""
    examples: list[bytes] = []
    if request_input.WhichOneof("kind") == "example_list":
        check_rows(_INPUTS, [len(request_input.example_list.examples)], limits)
        examples = [example.SerializeToString() for example in request_input.example_list.examples]
    elif request_input.WhichOneof("kind") == "example_list_with_context":
        # Concatenated serialized messages parse as merged; if both have a feature, the last one wins.
        context = request_input.example_list_with_context.context.SerializeToString()
        own = request_input.example_list_with_context.examples
        check_rows(_INPUTS, [len(own)], limits)
        check_examples(len(context), [example.ByteSize() for example in own], limits)
        examples = [context + example.SerializeToString() for example in own]
    if not examples:
        raise errors.invalid("Input is empty.")
    array = np.empty(len(examples), object)
    array[:] = examples
    return array


def _check_tasks(servable: Servable, request: MultiInferenceRequest) -> None:
    signatures: dict[str, SignatureDef] = {}
    for task in request.tasks:
        spec = task.model_spec
        if not spec.name:
            raise errors.invalid("Found ModelSpec with an empty model name.")
        if spec.name != request.tasks[0].model_spec.name:
            raise errors.invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = _name(spec)
        if name in signatures:
            raise errors.invalid(f"Duplicate evaluation of signature: {name}")
        if name not in servable.signature_defs:
            raise errors.invalid(f"Requested signature not found in model graph: {name}")
        signature = servable.signature_defs[name]
        if task.method_name not in _KIND:
            raise errors.ServingError(
                grpc.StatusCode.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
            )
        _check_signature(signature, task.method_name)
        signatures[name] = signature
        if len({signature.inputs[_INPUTS].name for signature in signatures.values()}) > 1:
            raise errors.invalid("Input tensor must be the same for all Signatures.")


def _check_signature(signature: SignatureDef, method: str) -> None:
    kind = _KIND[method]
    if signature.method_name != method:
        raise errors.invalid(f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise errors.invalid("Expected one input Tensor.")
    if method == CLASSIFY and len(signature.outputs) not in (1, 2):
        raise errors.invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if method == REGRESS and len(signature.outputs) != 1:
        raise errors.invalid("Expected one output Tensor.")
    if _INPUTS not in signature.inputs:
        raise _precondition(f"No {kind} inputs found in SignatureDef: {_line(signature)}")
    if method == REGRESS and _OUTPUTS not in signature.outputs:
        raise _precondition(f"No regression outputs found in SignatureDef: {_line(signature)}")
    if method == CLASSIFY and not {_CLASSES, _SCORES} & set(signature.outputs):
        raise _precondition(
            f'Expected classification signature outputs to contain at least one of "{_CLASSES}" or "{_SCORES}".'
            f" Signature was: {_line(signature)}"
        )


def _classifications(signature: SignatureDef, outputs: Mapping[str, np.ndarray], count: int) -> ClassificationResult:
    names = [name for name in (_CLASSES, _SCORES) if name in signature.outputs]
    for name in names:
        array, dtype = outputs[name], np.dtype(object if name == _CLASSES else np.float32)
        if array.ndim != 2:
            raise errors.invalid(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(array)}")
        if array.dtype != dtype:
            raise errors.invalid(
                f"Expected {name} Tensor of {tensors.dtype_name(dtype)}. Got: {tensors.dtype_name(array.dtype)}"
            )
        if len(array) != count:
            raise errors.invalid(f"Expected {name} output batch size of {count}. Got: {len(array)}")
    widths = [outputs[name].shape[1] for name in names]
    if len(set(widths)) > 1:
        raise errors.invalid(
            f"Tensors class and score should match in dim_size(1). Got {widths[0]} vs. {widths[1]}",
        )
    result = ClassificationResult()
    for row in range(count):
        classes = result.classifications.add().classes
        for column in range(widths[0]):
            entry = classes.add()
            if _CLASSES in names:
                entry.label = outputs[_CLASSES][row, column].decode(errors="replace")
            if _SCORES in names:
                entry.score = outputs[_SCORES][row, column]
    return result


def _regressions(outputs: Mapping[str, np.ndarray], count: int) -> RegressionResult:
    array = outputs[_OUTPUTS]
    if array.ndim != 1 and array.shape[1:] != (1,):
        raise errors.invalid(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(array)}"
        )
    if len(array) != count:
        raise errors.invalid(f"Input batch size did not match output batch size: {count} vs. {len(array)}")
    if array.dtype != np.float32:
        raise errors.invalid(f"Expected output Tensor of DT_FLOAT.  Got: {tensors.dtype_name(array.dtype)}")
    result = RegressionResult()
    for value in array.ravel():
        result.regressions.add(value=value)
    return result


def _fill_spec(answered: ModelSpec, servable: Servable, asked: ModelSpec) -> None:
    answered.name, answered.signature_name = servable.name, _name(asked)
    answered.version.value = servable.version


def _name(spec: ModelSpec) -> str:
    return spec.signature_name or DEFAULT_SIGNATURE


def _shape(array: np.ndarray) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _line(signature: SignatureDef) -> str:
    return " ".join(str(signature).split())


def _precondition(message: str) -> errors.ServingError:
    return errors.ServingError(grpc.StatusCode.FAILED_PRECONDITION, message)
