"""One loaded version of a model: its signatures, the checks of a request against them, and the call."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from serving import errors, tensors
from serving.protos import SavedModel, SignatureDef, TensorInfo

DEFAULT_SIGNATURE = "serving_default"
SAVED_MODEL_FILE = "saved_model.pb"


class Servable:
    """The SavedModel in `path`, ready to answer; whatever TensorFlow raises while loading passes through.

    Calls may come from any number of threads at once.
    """

    def __init__(self, name: str, version: int, path: Path):
        # Here, not above: the import takes seconds, and the client and `--help` do without it.
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  registers the ops that a model's graph may hold

        self.name = name
        self.version = version
        self.path = path
        self._tf = tf
        self._model = tf.saved_model.load(str(path))
        self._functions = dict(self._model.signatures)
        graphs = SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes()).meta_graphs
        serve = next(graph for graph in graphs if "serve" in graph.meta_info_def.tags)
        self.signature_defs: dict[str, SignatureDef] = dict(serve.signature_def)

    def signature(self, name: str) -> SignatureDef:
        """The signature called `name` ("" is serving_default); INVALID_ARGUMENT lists the ones there are."""
        name = name or DEFAULT_SIGNATURE
        if name not in self._functions:
            known = ", ".join(sorted(self._functions))
            raise errors.invalid(
                f'Serving signature name: "{name}" not found in signature def;'
                f" {self.name} version {self.version} has: {known}"
            )
        return self.signature_defs[name]

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray], output_filter: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Calls one signature.

        Args:
            signature_name: "" is serving_default.
            inputs: an array an input, in the signature's dtype; one that has a default may be left out.
            output_filter: the outputs wanted; none is all.

        Returns: the outputs by name.

        Raises:
            ServingError: INVALID_ARGUMENT naming what was expected, or the graph's error under its own code.
        """
        signature = self.signature(signature_name)
        wanted = self._outputs(signature, output_filter)
        arrays = self._inputs(signature_name or DEFAULT_SIGNATURE, signature, inputs)
        try:
            fed = {name: self._tf.constant(array) for name, array in arrays.items()}
            outputs = self._functions[signature_name or DEFAULT_SIGNATURE](**fed)
            return {name: np.asarray(outputs[name]) for name in wanted}
        except self._tf.errors.OpError as error:
            raise errors.from_exception(error) from error

    def _outputs(self, signature: SignatureDef, output_filter: Sequence[str]) -> list[str]:
        for name in output_filter:
            if name not in signature.outputs:
                raise errors.invalid(
                    f"output tensor alias not found in signature: {name}"
                    f" Outputs expected to be in the set {{{','.join(sorted(signature.outputs))}}}."
                )
        if len(set(output_filter)) != len(output_filter):
            raise errors.invalid(f"duplicate output tensor alias in {', '.join(output_filter)}")
        return list(output_filter) or sorted(signature.outputs)

    def _inputs(self, name: str, signature: SignatureDef, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        missing = set(signature.inputs) - set(inputs) - set(signature.defaults)
        if missing or set(inputs) - set(signature.inputs):
            expected = ", ".join(_describe(*item) for item in sorted(signature.inputs.items()))
            given = ", ".join(sorted(inputs)) or "nothing"
            raise errors.invalid(f'signature "{name}" takes {expected}; given: {given}')
        for key, array in inputs.items():
            info = signature.inputs[key]
            if array.dtype != tensors.numpy_dtype(info.dtype) or not _fits(array.shape, info):
                raise errors.invalid(
                    f'signature "{name}" takes {_describe(key, info)};'
                    f" given: {tensors.dtype_name(array.dtype)}{list(array.shape)}"
                )
        left_out = set(signature.defaults) - set(inputs)
        defaults = {key: tensors.to_array(signature.defaults[key]) for key in left_out}
        return {**defaults, **inputs}


def _fits(shape: tuple[int, ...], info: TensorInfo) -> bool:
    if info.tensor_shape.unknown_rank:
        return True
    sizes = [dim.size for dim in info.tensor_shape.dim]
    return len(sizes) == len(shape) and all(size in (-1, given) for size, given in zip(sizes, shape, strict=True))


def _describe(name: str, info: TensorInfo) -> str:
    """`text: DT_STRING[?]`"""
    sizes = ", ".join("?" if dim.size == -1 else str(dim.size) for dim in info.tensor_shape.dim)
    shape = "..." if info.tensor_shape.unknown_rank else sizes
    return f"{name}: {tensors.dtype_name(tensors.numpy_dtype(info.dtype))}[{shape}]"
