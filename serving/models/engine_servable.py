"""A version that an engine other than TensorFlow answers, from a folder with a file of its own.

The server knows no such engine: its caller gives it one (`pipeline.engines`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from serving import errors, tensors
from serving.models.servable import DEFAULT_SIGNATURE, Servable
from serving.protos import SignatureDef, TensorInfo, types_pb2
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.row_load import Budget, budget_of, example_features, sizes

_METHOD = "tensorflow/serving/"
# TensorFlow Serving's calls on tf.Examples: the output of serving_default that tells them, and theirs from its.
_ON_EXAMPLES = {
    "classify": ("label", {"classes": "labels", "scores": "scores"}),
    "regress": ("score", {"outputs": "score"}),
}
_EXAMPLES = "inputs"
# A call with more rows takes as long a row, and its first request waits for all of them (bench_serving.md).
_MOST_ROWS = 8

# By name: NumPy's type (object for strings) and the shape, -1 for an unknown size.
Tensors = Mapping[str, tuple[type, tuple[int, ...]]]


class EngineServable(Servable):
    """Answers of an engine that computes a call on one core.

    Adds `classify` and `regress` to a `serving_default` of labels or scores of texts.

    Args:
        signatures: by name; `inputs` and `outputs` are `Tensors`, `answer` takes the inputs in order and returns the
            outputs by name. ValueError: they cannot be answered. Thread-safe.
        budget: limits of a call; None: those for answers without delay.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        signatures: Mapping[str, Any],
        batching: BatchingSettings | None,
        budget: Budget | None = None,
    ):
        self._signatures, default = signatures, signatures[DEFAULT_SIGNATURE]
        shapes = {key: (of.inputs, of.outputs, "predict") for key, of in signatures.items()}
        for method, (sign, names) in _ON_EXAMPLES.items():
            if sign in default.outputs and set(default.inputs) <= {"text", "text_pair"}:
                outputs = {key: default.outputs[of] for key, of in names.items()}
                shapes[method] = {_EXAMPLES: (object, (-1,))}, outputs, method
        signature_defs = {key: _signature_def(*of) for key, of in shapes.items()}
        rows = min((batching or BatchingSettings()).max_batch_size, _MOST_ROWS)
        super().__init__(name, version, path, signature_defs, batching, budget or budget_of(rows))

    def compute(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not all(map(len, inputs.values())):  # no rows: engines need one
            infos = self.signature_defs[name].outputs.items()
            return {k: np.zeros([max(n, 0) for n in sizes(i)], tensors.numpy_dtype(i.dtype)) for k, i in infos}
        method = name if name in _ON_EXAMPLES and name not in self._signatures else ""
        signature = self._signatures[DEFAULT_SIGNATURE if method else name]
        if method:
            inputs = _features(inputs[_EXAMPLES], signature.inputs)
        try:
            outputs = signature.answer(*(inputs[key] for key in signature.inputs))
        except ValueError as error:
            raise errors.invalid(str(error)) from error
        except Exception as error:
            raise errors.from_exception(error) from error
        return {key: outputs[of] for key, of in _ON_EXAMPLES[method][1].items()} if method else outputs


def _features(examples: np.ndarray, names: Tensors) -> dict[str, np.ndarray]:
    """The texts of serialized tf.Examples [B], by name."""
    found: dict[str, list[bytes]] = {name: [] for name in names}
    for row, serialized in enumerate(examples):
        features = example_features(_EXAMPLES, row, serialized)
        for name, texts in found.items():
            values = list(features[name].bytes_list.value) if name in features else []
            if len(values) != 1:
                raise errors.invalid(f'input "{_EXAMPLES}", row {row}: feature {name} must be one string')
            texts += values
    return {name: np.array(texts, object) for name, texts in found.items()}


def _signature_def(inputs: Tensors, outputs: Tensors, method: str) -> SignatureDef:
    made = SignatureDef(method_name=_METHOD + method)
    for target, infos in ((made.inputs, inputs), (made.outputs, outputs)):
        for name, (type_, dims) in infos.items():
            number = types_pb2.DataType.Value(tensors.dtype_name(np.dtype(type_)))
            shape = {"dim": [{"size": size} for size in dims]}
            target[name].CopyFrom(TensorInfo(name=name, dtype=number, tensor_shape=shape))
    return made
