"""TensorFlow Serving's methods on tf.Examples: Classify and Regress.

They take a signature whose `method_name` is `tensorflow/serving/classify` or `.../regress`, with one input, `inputs`
(serialized tf.Examples, string[B]), and these outputs:

    classify    classes string[B, L], scores float[B, L]: one or both
    regress     outputs float[B] or float[B, 1]

Codes and messages are TensorFlow Serving's (classifier.cc, regressor.cc, util.cc). Its MultiInference takes several
signatures with one input tensor, which those of `tf.saved_model.save` never share: it is UNIMPLEMENTED.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np

from serving import errors, tensors
from serving.middleware.limits import check_examples, check_rows
from serving.middleware.settings import LimitSettings
from serving.models.servable import DEFAULT_SIGNATURE, Servable
from serving.protos import (
    ClassificationRequest,
    ClassificationResponse,
    ClassificationResult,
    Input,
    ModelSpec,
    RegressionResponse,
    RegressionResult,
    SignatureDef,
)

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"
_INPUTS, _CLASSES, _SCORES, _OUTPUTS = "inputs", "classes", "scores", "outputs"
# Servable, name of a signature, inputs -> outputs.
Predict = Callable[[Servable, str, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def answer(request: Any, get: Callable[[ModelSpec], Servable], predict: Predict, limits: LimitSettings) -> Any:
    """The response to a Classification- or RegressionRequest, from the servable and the outputs of its signature."""
    is_classify = isinstance(request, ClassificationRequest)
    response = ClassificationResponse() if is_classify else RegressionResponse()
    if not request.HasField("model_spec"):
        raise errors.invalid("Missing ModelSpec")
    servable, name = get(request.model_spec), request.model_spec.signature_name or DEFAULT_SIGNATURE
    if name not in servable.signature_defs:
        raise errors.invalid(f"No signature was found with the name: {name}")
    signature = servable.signature_defs[name]
    _check_signature(signature, is_classify)
    examples = serialized_examples(request.input, limits)
    outputs, count = predict(servable, name, {_INPUTS: examples}), len(examples)
    result = _classifications(signature, outputs, count) if is_classify else _regressions(outputs, count)
    response.result.CopyFrom(result)
    response.model_spec.name, response.model_spec.signature_name = servable.name, name
    response.model_spec.version.value = servable.version
    return response


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


def _check_signature(signature: SignatureDef, is_classify: bool) -> None:
    kind, method = ("classification", CLASSIFY) if is_classify else ("regression", REGRESS)
    line = " ".join(str(signature).split())
    if signature.method_name != method:
        raise errors.invalid(f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise errors.invalid("Expected one input Tensor.")
    if is_classify and len(signature.outputs) not in (1, 2):
        raise errors.invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if not is_classify and len(signature.outputs) != 1:
        raise errors.invalid("Expected one output Tensor.")
    if _INPUTS not in signature.inputs:
        raise _precondition(f"No {kind} inputs found in SignatureDef: {line}")
    if not is_classify and _OUTPUTS not in signature.outputs:
        raise _precondition(f"No regression outputs found in SignatureDef: {line}")
    if is_classify and not {_CLASSES, _SCORES} & set(signature.outputs):
        raise _precondition(
            f'Expected classification signature outputs to contain at least one of "{_CLASSES}" or "{_SCORES}".'
            f" Signature was: {line}"
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
        raise errors.invalid(f"Tensors class and score should match in dim_size(1). Got {widths[0]} vs. {widths[1]}")
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


def _shape(array: np.ndarray) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _precondition(message: str) -> errors.ServingError:
    return errors.ServingError(grpc.StatusCode.FAILED_PRECONDITION, message)
