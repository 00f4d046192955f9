"""One loaded version of a model: signatures, validation of requests, and execution.

As in TensorFlow Serving, every version has its own session. Everything that belongs to the session is freed with it;
resources of eager functions would not be.
"""

import json
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving import errors, tensors
from serving.protos import MetaGraphDef, SavedModel, SignatureDef
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.jobs import Job
from serving.scheduling.row_load import Budget, answer_bytes, budget_of, can_divide, can_share, check_load, load_of

# A signature in form only: it runs the initialisers.
INIT_SIGNATURE = "__saved_model_init_op"
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
        batching: limits of a call.
        budget: its limits in place of those of `batching`.

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
        budget: Budget | None = None,
    ):
        batching = batching or BatchingSettings()
        self.name = name
        self.version = version
        self.path = path
        self.mask = _mask_of(path)
        self.signature_defs = dict(signature_defs)
        self._budget = budget or budget_of(batching.max_batch_size)
        self._sizes = batching.allowed_batch_sizes
        self._divisible = {key for key, signature in self.signature_defs.items() if can_divide(key, signature)}
        self._shareable = {key for key in self._divisible if can_share(key, self.signature_defs[key])}

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

    def prepare(self, signature_name: str, inputs: Mapping[str, np.ndarray], output_filter: Sequence[str] = ()) -> Job:
        """Validate a request, without computing anything yet.

        Args:
            signature_name: "" is serving_default.
            inputs: an array for each input, in the signature's dtype; inputs with a default may be omitted.
            output_filter: names of the wanted outputs; empty for all.

        INVALID_ARGUMENT names the expected value.
        """
        signature = self.signature(signature_name)
        name = signature_name or DEFAULT_SIGNATURE
        wanted = self._outputs(signature, output_filter)
        arrays = self._inputs(name, signature, inputs)
        load = load_of(arrays)
        has_rows = {array.shape[0] for array in arrays.values() if array.ndim} == {len(load.tokens)} != {0}
        divides = name in self._divisible and has_rows
        check_load(load, self._budget, divides)
        size, shares = answer_bytes(signature, wanted, load), name in self._shareable
        return Job(self, name, signature, wanted, arrays, load, size, self._budget, divides, shares, self._sizes)

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray], output_filter: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Call one signature now, in this thread: `prepare`, then `Job.run`."""
        return self.prepare(signature_name, inputs, output_filter).run()

    def compute(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs of a signature; ServingError with the code of the engine's error."""
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
        if name in self._divisible and len(set(counts.values())) > 1:
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
        with tempfile.TemporaryDirectory() as folder:
            if set("*?[") & set(str(path)):  # TensorFlow would take it for a pattern, and find no variables
                path = Path(folder) / "version"
                path.symlink_to(self.path.resolve())
            self._session = _session(meta_graph, path)
        # Also at exit: callables of an open session fail once TensorFlow's modules are gone.
        weakref.finalize(self, self._session.close)
        self._errors = tf.errors
        self._lock = threading.Lock()
        self._callables: dict[str, Callable[..., list[Any]]] = {}

    def compute(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        signature, call = self.signature_defs[name], self._callable(name)
        try:
            values = call(*(inputs[key] for key in sorted(signature.inputs)))
        except (self._errors.OpError, UnicodeDecodeError) as error:
            raise errors.from_exception(error) from error
        return {key: _as_array(value) for key, value in zip(sorted(signature.outputs), values, strict=True)}

    def _callable(self, name: str) -> Callable[..., list[Any]]:
        """The call of a signature, from its inputs to all its outputs, in the order of their names.

        Its graph is optimised when it is made, which takes about a second; each subset of outputs would be another
        graph. Operations run one after the other in the calling thread, as an encoder needs them. With
        `Session.make_callable`, which leads to `Session.run`, and with operations that change threads, one text took
        longer (bench_serving.md). The public method takes no `CallableOptions`.
        """
        from tensorflow.core.protobuf import config_pb2

        with self._lock:
            if name not in self._callables:
                signature = self.signature_defs[name]
                inputs, outputs = (
                    [infos[key].name for key in sorted(infos)] for infos in (signature.inputs, signature.outputs)
                )
                options = config_pb2.CallableOptions(feed=inputs, fetch=outputs)
                options.run_options.inter_op_thread_pool = -1
                self._callables[name] = self._session._make_callable_from_options(options)
            return self._callables[name]


def _session(meta_graph: MetaGraphDef, path: Path) -> Any:
    """Session with the graph, variables and assets of the SavedModel in `path`, restored and initialised."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        saver = tf.compat.v1.train.import_meta_graph(meta_graph)
    config = tf.compat.v1.ConfigProto()
    # A second round of optimisation makes no difference.
    config.graph_options.rewrite_options.meta_optimizer_iterations = 1
    # Idle threads must sleep: spinning took the cores from threads with work, in the server and its clients.
    config.experimental.disable_thread_spinning = True
    session = tf.compat.v1.Session(graph=graph, config=config)
    try:
        if saver is not None:
            with graph.as_default():  # the restore looks for a default graph
                saver.restore(session, str(path / "variables" / "variables"))
        if INIT_SIGNATURE in meta_graph.signature_def:
            assets = {file.tensor_info.name: str(path / "assets" / file.filename) for file in meta_graph.asset_file_def}
            session.run(meta_graph.signature_def[INIT_SIGNATURE].outputs[INIT_SIGNATURE].name, assets)
    except BaseException:
        session.close()
        raise
    return session


def _mask_of(path: Path) -> str:
    try:
        spec = json.loads((path / VOCABULARY_SPEC_FILE).read_text("utf-8"))
        return str(spec.get("format", {}).get("mask") or _MASKS.get(spec["algorithm"], ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""  # another program's SavedModel


def _as_array(value: Any) -> np.ndarray:
    """Convert an output to an array: a session returns a single string as bytes, which NumPy would split."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
