"""One loaded version of a model: signatures, validation of requests, and execution.

As in TensorFlow Serving, every version has its own session. Everything that belongs to the session is freed with it;
resources of eager functions would not be.
"""

import collections
import functools
import importlib.util
import json
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from serving import errors, tensors
from serving.protos import FunctionDef, MetaGraphDef, SavedModel, SignatureDef, without_running_tensorflow
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.cores import cores
from serving.scheduling.jobs import Job
from serving.scheduling.row_load import Budget, answer_bytes, budget_of, can_divide, can_share, check_load, load_of

# A signature in form only: it runs the initialisers.
INIT_SIGNATURE = "__saved_model_init_op"
DEFAULT_SIGNATURE = "serving_default"
SAVED_MODEL_FILE = "saved_model.pb"
# Beside the SavedModels of this project: which token a text for `fill_mask` has where one is to be filled in.
VOCABULARY_SPEC_FILE = "vocab_spec.json"
# Its mask and padding, by the algorithm, where it does not say them.
_SPECIAL = {"byte_bpe": ("<mask>", "<pad>"), "sentencepiece": ("[MASK]", "<pad>"), "wordpiece": ("[MASK]", "[PAD]")}


class Servable:
    """A version of a model, ready for requests. Thread-safe; an engine computes in `compute`.

    `batching`, or in its place `budget`, limits a call. `mask` is the token that stands for a masked word in a text, ""
    if the version's folder, `path`, does not say it; `dimensions` are those that vectors of texts may be cut to, as the
    model was trained for it.
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
        self.name, self.version, self.path = name, version, path
        self.mask, pad = _special_tokens(path)
        self._pad = pad.encode()
        self.dimensions = _dimensions_of(path)
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
        """Validate a request, without computing anything yet; INVALID_ARGUMENT names the expected value.

        `inputs` are arrays in the signature's dtypes; those with a default may be omitted. An empty `output_filter` is
        all outputs, an empty `signature_name` serving_default.
        """
        signature = self.signature(signature_name)
        name = signature_name or DEFAULT_SIGNATURE
        wanted = self._outputs(signature, output_filter)
        arrays = self._inputs(name, signature, inputs)
        loads = load_of(arrays)
        has_rows = {array.shape[0] for array in arrays.values() if array.ndim} == {len(loads)} != {0}
        divides = name in self._divisible and has_rows
        check_load(loads, self._budget, divides)
        limits = answer_bytes(signature, wanted, loads), self._budget, divides, name in self._shareable
        return Job(self, name, signature, wanted, arrays, loads, *limits, self._sizes, self._pad)

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
        self._lock = threading.Lock()
        self._twins = _twins(meta_graph)
        self._callables: dict[str, Callable[..., list[Any]]] = {}

    def compute(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        signature, call = self.signature_defs[name], self._callable(name)
        try:
            values = call(*(inputs[key] for key in sorted(signature.inputs)))
        except (_tensorflow().errors_impl.OpError, UnicodeDecodeError) as error:
            raise errors.from_exception(error) from error
        # NumPy would split a single string, which a session returns as bytes.
        arrays = [np.array(value, object) if isinstance(value, bytes) else np.asarray(value) for value in values]
        return dict(zip(sorted(signature.outputs), arrays, strict=True))

    def _callable(self, name: str) -> Callable[..., list[Any]]:
        """The call of a signature, from its inputs to all its outputs, in the order of their names.

        Its graph is optimised when it is made, which takes about a second; each subset of outputs would be another one.
        Operations run one after the other in the calling thread: so, and not by `Session.run`, one text takes the least
        time (bench_serving.md). The public `make_callable` takes no `CallableOptions`.
        """
        name = self._twins.get(name, name)
        if call := self._callables.get(name):
            return call
        with self._lock:
            if name not in self._callables:
                signature = self.signature_defs[name]
                inputs, outputs = (
                    [infos[key].name for key in sorted(infos)] for infos in (signature.inputs, signature.outputs)
                )
                options = _tensorflow().config_pb2.CallableOptions(feed=inputs, fetch=outputs)
                options.run_options.inter_op_thread_pool = -1
                self._callables[name] = self._session._make_callable_from_options(options)
            return self._callables[name]


_importing = threading.Lock()
_TensorFlow = collections.namedtuple("_TensorFlow", "config_pb2 session errors_impl importer ops")


def _tensorflow() -> _TensorFlow:
    """The modules of TensorFlow that a session needs (0.6 s of CPU, all of it 4 s), and TensorFlow Text's ops."""
    with _importing:
        return _imported_tensorflow()


@functools.cache
def _imported_tensorflow() -> _TensorFlow:
    try:
        with without_running_tensorflow(keep=True):
            from tensorflow.core.protobuf import config_pb2
            from tensorflow.python.client import session
            from tensorflow.python.framework import errors_impl, importer, load_library, ops
    except ModuleNotFoundError as error:
        reason = f"{SAVED_MODEL_FILE} needs TensorFlow, which is not installed ({error}); convert the model --to onnx"
        raise errors.ServingError(grpc.StatusCode.FAILED_PRECONDITION, reason) from error
    text = importlib.util.find_spec("tensorflow_text")
    for folder in (text and text.submodule_search_locations) or ():
        for library in sorted(Path(folder, "python", "ops").glob("*.so")):
            load_library.load_op_library(str(library))
    return _TensorFlow(config_pb2, session, errors_impl, importer, ops)


def _session(meta_graph: MetaGraphDef, path: Path) -> Any:
    tf = _tensorflow()
    graph = tf.ops.Graph()
    with graph.as_default():
        stripped = meta_graph.meta_info_def.stripped_op_list
        tf.importer.import_graph_def(meta_graph.graph_def, name="", producer_op_list=stripped)
    config = tf.config_pb2.ConfigProto()
    # A second round of optimisation makes no difference, nor do these kinds of it: an eighth of the time.
    rewriter = config.graph_options.rewrite_options
    rewriter.meta_optimizer_iterations = 1
    rewriter.memory_optimization = rewriter.NO_MEM_OPT
    rewriter.layout_optimizer = rewriter.loop_optimization = rewriter.OFF
    # Idle threads must sleep: spinning took the cores from threads with work, in the server and its clients.
    config.experimental.disable_thread_spinning = True
    config.intra_op_parallelism_threads = cores()  # TensorFlow itself does not see a container's limit
    session = tf.session.Session(graph=graph, config=config)
    try:
        saver, names, feeds = meta_graph.saver_def, [], {}
        if saver.restore_op_name:
            names.append(saver.restore_op_name)
            feeds[saver.filename_tensor_name] = str(path / "variables" / "variables")
        if INIT_SIGNATURE in meta_graph.signature_def:
            names.append(meta_graph.signature_def[INIT_SIGNATURE].outputs[INIT_SIGNATURE].name)
            if len(names) == 2 and _share_variables([graph.as_graph_element(name.split(":")[0]) for name in names]):
                session.run(names.pop(0), feeds)
            feeds |= {file.tensor_info.name: str(path / "assets" / file.filename) for file in meta_graph.asset_file_def}
        # Together: the graph is prepared once.
        session.run(names, feeds)
    except BaseException:
        session.close()
        raise
    return session


def _twins(meta_graph: MetaGraphDef) -> dict[str, str]:
    """By signature, the first that calls the same function with the same inputs: one prepared graph answers both."""
    functions = {function.signature.name: function for function in meta_graph.graph_def.library.function}
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    first: dict[Any, str] = {}
    twins = {}
    for name, signature in sorted(meta_graph.signature_def.items()):
        called = {info.name.partition(":")[0] for info in signature.outputs.values()}
        node = nodes[called.pop()] if len(called) == 1 else None
        if node is None or "f" not in node.attr:
            continue
        # The function, which differs by its own name and those of its inputs.
        body = FunctionDef.FromString(functions[node.attr["f"].func.name].SerializeToString())
        body.signature.name = ""
        body.arg_attr.clear()
        keys = {info.name.partition(":")[0]: ("input", key) for key, info in signature.inputs.items()}
        outputs = tuple(sorted((key, info.name.partition(":")[2]) for key, info in signature.outputs.items()))
        inputs = tuple(keys.get(tensor, tensor) for tensor in node.input)
        twins[name] = first.setdefault((body.SerializeToString(deterministic=True), inputs, outputs), name)
    return twins


def _share_variables(operations: Sequence[Any]) -> bool:
    needed: list[set[Any]] = []
    for operation in operations:
        reached, pending = set(), [operation]
        while pending:
            if (current := pending.pop()) not in reached:
                reached.add(current)
                pending += [*current.control_inputs, *(tensor.op for tensor in current.inputs)]
        needed.append({current for current in reached if current.type == "VarHandleOp"})
    return bool(set.intersection(*needed))


def _special_tokens(path: Path) -> tuple[str, str]:
    """The mask, "" if it is not known, and the padding of the vocabulary of a model folder."""
    try:
        spec = json.loads((path / VOCABULARY_SPEC_FILE).read_text("utf-8"))
        mask, pad = _SPECIAL.get(spec["algorithm"], ("", "[PAD]"))
        tokens = spec.get("format", {})
        return str(tokens.get("mask") or mask), str(tokens.get("pad") or pad)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", "[PAD]"  # another program's SavedModel


def _dimensions_of(path: Path) -> frozenset[int]:
    try:  # a field of `bert_keras.saved_model.settings.EmbeddingSettings`
        config = json.loads((path / "bert_config.json").read_text("utf-8"))
        return frozenset(config["embedding"]["matryoshka_dimensions"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()
