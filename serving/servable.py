"""One loaded version of a model: its signatures, the checks of a request against them, and the call.

A version has a session of its own, as in TensorFlow Serving, over a graph that it may share (`serving.model_graph`).
All that the session made, its batching threads included, goes with it, which the resources of eager functions do not.
"""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from serving import errors, tensors
from serving.batching import BatchingSettings
from serving.model_graph import INIT_SIGNATURE, model_graph
from serving.protos import SavedModel, SignatureDef, TensorInfo

DEFAULT_SIGNATURE = "serving_default"
SAVED_MODEL_FILE = "saved_model.pb"


class Servable:
    """The SavedModel in `path`, ready to answer; whatever TensorFlow raises while loading passes through.

    Calls may come from any number of threads at once.

    Args:
        name: the model's.
        version: its number.
        path: the SavedModel, of TensorFlow 2.
        batching: how requests are batched; None for not at all.
    """

    def __init__(self, name: str, version: int, path: Path, batching: BatchingSettings | None = None):
        # Here, not above: the import takes seconds, and the client and `--help` do without it.
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  registers the ops that a model's graph may hold

        self.name = name
        self.version = version
        self.path = path
        graphs = SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes()).meta_graphs
        meta_graph = next(graph for graph in graphs if "serve" in graph.meta_info_def.tags)
        self.signature_defs: dict[str, SignatureDef] = dict(meta_graph.signature_def)
        self._graph = model_graph(meta_graph, batching)
        self._session = self._graph.session(path)
        weakref.finalize(self, self._session.close).atexit = False
        self._errors = tf.errors
        self._lock = threading.Lock()
        self._alone: dict[str, Callable[..., list[Any]]] = {}
        self._batched = {key: batched.callable_in(self._session) for key, batched in self._graph.batched.items()}

    def signature(self, name: str) -> SignatureDef:
        """The signature called `name` ("" is serving_default); INVALID_ARGUMENT lists the ones there are."""
        name = name or DEFAULT_SIGNATURE
        if name not in self.signature_defs or name == INIT_SIGNATURE:
            known = ", ".join(sorted(set(self.signature_defs) - {INIT_SIGNATURE}))
            raise errors.invalid(
                f'Serving signature name: "{name}" not found in signature def;'
                f" {self.name} version {self.version} has: {known}"
            )
        return self.signature_defs[name]

    def prepare(
        self, signature_name: str, inputs: Mapping[str, np.ndarray], output_filter: Sequence[str] = ()
    ) -> "Work":
        """Checks a request and computes nothing yet.

        Args:
            signature_name: "" is serving_default.
            inputs: an array an input, in the signature's dtype; one that has a default may be left out.
            output_filter: the outputs wanted; none is all.

        Raises:
            ServingError: INVALID_ARGUMENT naming what was expected.
        """
        signature = self.signature(signature_name)
        name = signature_name or DEFAULT_SIGNATURE
        wanted = tuple(self._outputs(signature, output_filter))
        arrays = self._inputs(name, signature, inputs)
        batched = name in self._batched and self._graph.batched[name].takes(arrays)
        return Work(self, name, arrays, wanted, batched)

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray], output_filter: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Calls one signature now, whoever else computes: `prepare` and `Work.run`."""
        return self.prepare(signature_name, inputs, output_filter).run()

    def compute(self, work: "Work") -> dict[str, np.ndarray]:
        """All outputs of `work`'s signature; ServingError with the graph's error under its own code."""
        name = work.signature_name
        outputs = self._graph.batched[name].compute(self._batched[name], work.inputs) if work.batched else None
        if outputs is not None:
            return outputs
        signature = self.signature_defs[name]
        call = self._call_alone(name, signature)
        try:
            values = call(*(work.inputs[key] for key in sorted(signature.inputs)))
        except self._errors.OpError as error:
            raise errors.from_exception(error) from error
        return dict(zip(sorted(signature.outputs), values, strict=True))

    def _call_alone(self, name: str, signature: SignatureDef) -> Callable[..., list[Any]]:
        """All outputs, even if some are wanted: each choice would be an executable that the first caller waits for."""
        with self._lock:
            if name not in self._alone:
                feeds = [signature.inputs[key].name for key in sorted(signature.inputs)]
                self._alone[name] = self._session.make_callable(self._graph.fetches[name], feed_list=feeds)
            return self._alone[name]

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


@dataclass(frozen=True)
class Work:
    """A request that has been checked, with the servable that will answer it.

    Attributes:
        servable: held until the answer is there, whatever is swapped meanwhile.
        signature_name: in full.
        inputs: all of the signature's, by name.
        wanted: names of the outputs.
        batched: whether it is computed together with others.
    """

    servable: Servable
    signature_name: str
    inputs: Mapping[str, np.ndarray]
    wanted: tuple[str, ...]
    batched: bool

    def run(self) -> dict[str, np.ndarray]:
        """The outputs by name; ServingError with the graph's error under its own code."""
        outputs = self.servable.compute(self)
        return {name: _as_array(outputs[name]) for name in self.wanted}


def _as_array(value: Any) -> np.ndarray:
    """A session gives a single string as bytes, which NumPy would make an array of characters."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


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
