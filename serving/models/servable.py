"""One loaded version of a model: signatures, validation of requests, and execution.

As in TensorFlow Serving, every version has its own session, over a graph that versions may share
(`serving.models.graph`). Everything that belongs to the session, such as batching threads, is freed with it; resources
of eager functions would not be.
"""

import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from serving import errors, tensors
from serving.models.graph import INIT_SIGNATURE, model_graph
from serving.protos import SavedModel, SignatureDef
from serving.scheduling.batching import BatchingSettings, callable_of, can_batch
from serving.scheduling.request_parts import Load, Part, answer_bytes, is_divisible, joined, parts_of

DEFAULT_SIGNATURE = "serving_default"
SAVED_MODEL_FILE = "saved_model.pb"
# Beside the SavedModels of this project: which token a text for `fill_mask` has where one is to be filled in.
VOCABULARY_SPEC_FILE = "vocab_spec.json"
_MASKS = {"wordpiece": "[MASK]", "byte_bpe": "<mask>", "sentencepiece": "[MASK]"}


class Servable:
    """A version of a model, ready for requests. Thread-safe; an engine computes in `compute`.

    Args:
        path: the version's folder.
        signature_defs: the signatures, by name.
        batching: how requests are batched; None disables batching.

    Attributes:
        mask: the token that stands for a masked word in a text; "" if the folder does not say it.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        signature_defs: Mapping[str, SignatureDef],
        batching: BatchingSettings | None = None,
    ):
        self.name = name
        self.version = version
        self.path = path
        self.mask = _mask_of(path)
        self.signature_defs = dict(signature_defs)
        self._most_rows = (batching or BatchingSettings()).max_batch_size
        self._divisible = {
            key: is_divisible(signature, can_batch(key, signature)) for key, signature in self.signature_defs.items()
        }

    def signature(self, name: str) -> SignatureDef:
        """The signature called `name` ("" is serving_default); INVALID_ARGUMENT lists the existing ones."""
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
    ) -> "PreparedRequest":
        """Validate a request, without computing anything yet.

        Args:
            signature_name: "" is serving_default.
            inputs: an array for each input, in the signature's dtype; inputs with a default may be omitted.
            output_filter: names of the wanted outputs; empty for all.

        Raises:
            ServingError: INVALID_ARGUMENT, with the expected value.
        """
        signature = self.signature(signature_name)
        name = signature_name or DEFAULT_SIGNATURE
        wanted = tuple(self._outputs(signature, output_filter))
        arrays = self._inputs(name, signature, inputs)
        load = Load.of(arrays)
        parts = parts_of(arrays, load, self._most_rows, self._divisible[name])
        return PreparedRequest(
            self, name, wanted, tuple(parts), len(load.tokens), answer_bytes(signature, wanted, load)
        )

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray], output_filter: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Call one signature now, ignoring concurrency limits: `prepare`, then `PreparedRequest.run`."""
        return self.prepare(signature_name, inputs, output_filter).run()

    def batches(self, name: str, part: Part) -> bool:
        """Whether a part of a request is batched with others, or waits its turn elsewhere."""
        raise NotImplementedError

    def compute(self, name: str, part: Part) -> dict[str, np.ndarray]:
        """All outputs of a signature for a part; ServingError with the code of the engine's error."""
        raise NotImplementedError

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
            expected = ", ".join(tensors.describe(*item) for item in sorted(signature.inputs.items()))
            given = ", ".join(sorted(inputs)) or "nothing"
            raise errors.invalid(f'signature "{name}" takes {expected}; given: {given}')
        for key, array in inputs.items():
            info = signature.inputs[key]
            if array.dtype != tensors.numpy_dtype(info.dtype) or not tensors.fits(array.shape, info):
                raise errors.invalid(
                    f'signature "{name}" takes {tensors.describe(key, info)};'
                    f" given: {tensors.dtype_name(array.dtype)}{list(array.shape)}"
                )
        # One row is a default's, which models repeat.
        counts = {
            key: len(array)
            for key, array in sorted(inputs.items())
            if array.ndim and not (key in signature.defaults and len(array) == 1)
        }
        if self._divisible[name] and len(set(counts.values())) > 1:
            given = ", ".join(f"{key} {count}" for key, count in counts.items())
            raise errors.invalid(f'signature "{name}": all inputs must have the same number of rows; given: {given}')
        left_out = set(signature.defaults) - set(inputs)
        defaults = {key: tensors.to_array(signature.defaults[key]) for key in left_out}
        return {**defaults, **inputs}


class GraphServable(Servable):
    """The SavedModel of TensorFlow 2 in `path`; TensorFlow's errors while loading pass through."""

    def __init__(self, name: str, version: int, path: Path, batching: BatchingSettings | None = None):
        # Imported here because it takes seconds; the client and `--help` do without it.
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  registers ops that the graph may contain

        graphs = SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes()).meta_graphs
        meta_graph = next(graph for graph in graphs if "serve" in graph.meta_info_def.tags)
        super().__init__(name, version, path, meta_graph.signature_def, batching)
        self._graph = model_graph(meta_graph, batching)
        self._session = self._graph.session(path)
        # Also at exit: callables of an open session fail once TensorFlow's modules are gone.
        weakref.finalize(self, self._session.close)
        self._errors = tf.errors
        self._lock = threading.Lock()
        self._alone: dict[str, Callable[..., list[Any]]] = {}
        self._batched = {key: batched.callable_in(self._session) for key, batched in self._graph.batched.items()}

    def batches(self, name: str, part: Part) -> bool:
        return part.shared and name in self._batched and self._graph.batched[name].takes(part.inputs)

    def compute(self, name: str, part: Part) -> dict[str, np.ndarray]:
        if self.batches(name, part):
            outputs = self._graph.batched[name].compute(self._batched[name], part.inputs)
            if outputs is not None:
                return outputs
        signature = self.signature_defs[name]
        call = self._call_alone(name, signature)
        try:
            values = call(*(part.inputs[key] for key in sorted(signature.inputs)))
        except (self._errors.OpError, UnicodeDecodeError) as error:
            raise part.located(errors.from_exception(error)) from error
        return dict(zip(sorted(signature.outputs), values, strict=True))

    def _call_alone(self, name: str, signature: SignatureDef) -> Callable[..., list[Any]]:
        """Fetch all outputs: each subset would compile a separate executable."""
        with self._lock:
            if name not in self._alone:
                feeds = [signature.inputs[key].name for key in sorted(signature.inputs)]
                fetches = [getattr(fetch, "name", fetch) for fetch in self._graph.fetches[name]]
                self._alone[name] = callable_of(self._session, fetches, feeds)
            return self._alone[name]


@dataclass(frozen=True)
class PreparedRequest:
    """A validated request with the servable that will answer it.

    Attributes:
        servable: kept loaded until the request is answered.
        signature_name: never "".
        wanted: names of the wanted outputs.
        parts: the request in parts, computed one after the other.
        answer_bytes: upper bound of the memory of the wanted outputs.
    """

    servable: Servable
    signature_name: str
    wanted: tuple[str, ...]
    parts: tuple[Part, ...]
    rows: int
    answer_bytes: int

    def run(self, turn: Callable[[int], AbstractContextManager[object]] = nullcontext) -> dict[str, np.ndarray]:
        """Outputs by name; ServingError with the code of the graph's error.

        Each part is computed within a `turn(rows)`, 0 rows if it is not batched; an error of it ends the request.
        """
        answers = []
        for part in self.parts:
            batched = self.servable.batches(self.signature_name, part)
            rows = max((size for array in part.inputs.values() for size in array.shape[:1]), default=1)
            with turn(max(rows, 1) if batched else 0):
                outputs = self.servable.compute(self.signature_name, part)
            answers.append({name: _as_array(outputs[name]) for name in self.wanted})
        return answers[0] if len(answers) == 1 else joined(self.parts, answers, self.rows)


def _mask_of(path: Path) -> str:
    try:
        algorithm = json.loads((path / VOCABULARY_SPEC_FILE).read_text("utf-8"))["algorithm"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # another program's SavedModel
    return _MASKS.get(algorithm, "")


def _as_array(value: Any) -> np.ndarray:
    """Convert an output to an array: a session returns a single string as bytes, which NumPy would split."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
