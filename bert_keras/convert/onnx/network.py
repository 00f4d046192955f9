"""The graph of a folder, computed on the processor: `model.onnx` by ONNX Runtime, int8 and bfloat16 by OpenVINO.

In float32 ONNX Runtime takes less time, in int8 OpenVINO is faster and closer
(docs/decisions/0054-two-engines-by-precision.md).
"""

import math
import os
import threading
from collections.abc import Mapping

import numpy as np
import onnxruntime
import openvino

from bert_keras.errors import InputError

# The float32 graph, and the int8 graph in OpenVINO's own format, which has its weights in a second file.
MODEL_FILE, INT8_FILE, INT8_WEIGHTS_FILE = "model.onnx", "openvino_model.xml", "openvino_model.bin"
# Properties of `model.onnx`: to be computed in bfloat16; quantized by ONNX Runtime, in releases before OpenVINO.
BFLOAT16, _QUANTIZED = "bfloat16", "onnx.quant.pre_process"
# A call takes all cores after as many that found no other under way: with some clients, another one is about to come.
_FEW_CALLS = 8
# Threads of one call; more do not help a short text.
_MOST_CORES = 4
# Sequences are padded to a multiple: OpenVINO compiles operations for each shape and keeps them (decision 54).
# Files have calls of fewer shapes than requests: full ones, and the last of a window, filled to a multiple of tokens.
_LENGTH_STEP, _LENGTH_STEP_OF_FILES, _TOKEN_STEP_OF_FILES = 16, 8, 128


def open_network(directory: str, cores: int, whole_files: bool = False) -> "Network":
    """The graph of `openvino_model.xml` or `model.onnx`.

    InputError: the file is damaged, or was quantized for ONNX Runtime. `directory`: the folder. `cores`: calls at a
    time, each on a core of its own; a float32 call that finds no other under way uses several. `whole_files`: the calls
    are those of whole files: each on one core, so that answers do not depend on the others.
    """
    if os.path.exists(os.path.join(directory, INT8_FILE)):
        return OpenVino(os.path.join(directory, INT8_FILE), cores, whole_files, "f32")
    path = os.path.join(directory, MODEL_FILE)
    network = OnnxRuntime(path, cores, whole_files)
    return OpenVino(path, cores, whole_files, "bf16") if network.is_bfloat16 else network


class Network:
    """A graph in an engine. Thread-safe.

    `inputs`: their names. `outputs`: their shapes by name, -1 for an unknown size. `length_step`: sequences should have
    a multiple of so many tokens.
    """

    inputs: list[str]
    outputs: dict[str, tuple[int, ...]]
    length_step = 1

    def __init__(self) -> None:
        self._calls, self._lock = 0, threading.Lock()
        self._lone_calls = _FEW_CALLS  # that began with no other under way, one after the other

    def compute(self, feed: Mapping[str, np.ndarray], names: tuple[str, ...]) -> list[np.ndarray]:
        """The outputs `names` for inputs int64 [B, ..., T]."""
        with self._lock:
            self._calls += 1
            self._lone_calls = self._lone_calls + 1 if self._calls == 1 else 0
            is_alone = self._lone_calls > _FEW_CALLS
        try:
            return self._computed(feed, names, is_alone)
        finally:
            with self._lock:
                self._calls -= 1

    def _computed(self, feed: Mapping[str, np.ndarray], names: tuple[str, ...], is_alone: bool) -> list[np.ndarray]:
        raise NotImplementedError


class OnnxRuntime(Network):
    """The graph of `model.onnx`."""

    def __init__(self, path: str, cores: int, whole_files: bool):
        super().__init__()
        try:
            self._session = _session(path, 1)
        except Exception as error:
            raise InputError(f"{path}: ONNX Runtime cannot read it ({error}); convert the model again") from error
        properties = self._session.get_modelmeta().custom_metadata_map
        if _QUANTIZED in properties:
            raise InputError(f"{path}: int8 of an earlier release; convert the model again with --quantize int8")
        self.is_bfloat16 = BFLOAT16 in properties
        threads = 1 if whole_files or self.is_bfloat16 else min(cores, _MOST_CORES)
        # For a call that finds no other under way: on two cores 0.7 of the time. The weights are in memory twice.
        self._on_all_cores = _session(path, threads) if threads > 1 else self._session
        self.inputs = [value.name for value in self._session.get_inputs()]
        self.outputs = {
            value.name: tuple(size if isinstance(size, int) else -1 for size in value.shape)
            for value in self._session.get_outputs()
        }
        self._options = onnxruntime.RunOptions()
        self._options.only_execute_path_to_fetches = True

    def _computed(self, feed: Mapping[str, np.ndarray], names: tuple[str, ...], is_alone: bool) -> list[np.ndarray]:
        return (self._on_all_cores if is_alone else self._session).run(names, feed, self._options)


def _session(path: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # Clients, and calls of other threads, use the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class OpenVino(Network):
    """The graph of `openvino_model.xml`, or of `model.onnx` in bfloat16; each call is on one core."""

    def __init__(self, path: str, cores: int, whole_files: bool, precision: str):
        super().__init__()
        self._core, self._cores, self._precision = openvino.Core(), cores, precision
        self.length_step = _LENGTH_STEP_OF_FILES if whole_files else _LENGTH_STEP
        self._token_step = _TOKEN_STEP_OF_FILES if whole_files else 1
        try:
            self.model = self._core.read_model(path)
        except RuntimeError as error:
            raise InputError(f"{path}: OpenVINO cannot read it ({error}); convert the model again") from error
        self.inputs = [value.any_name for value in self.model.inputs]
        self.outputs = {
            value.any_name: tuple(size.get_length() if size.is_static else -1 for size in value.partial_shape)
            for value in self.model.outputs
        }
        # Multiple choice has its logits by choice, not by token.
        by_choice = len(self.model.inputs[0].partial_shape) == 3
        self._by_token = {
            name for name, shape in self.outputs.items() if shape[1:2] == (-1,) and not (by_choice and name == "logits")
        }
        self._compiled: dict[tuple[str, ...], openvino.CompiledModel] = {}

    def _computed(self, feed: Mapping[str, np.ndarray], names: tuple[str, ...], is_alone: bool) -> list[np.ndarray]:
        count, *choices, length = feed["input_ids"].shape
        padding = -length % self.length_step
        tokens = math.prod(choices) * (length + padding)
        empty_rows = -(-count * tokens // self._token_step) * self._token_step // tokens - count
        paddings = [(0, empty_rows), *[(0, 0)] * len(choices), (0, padding)]
        feed = {name: np.pad(value, paddings) for name, value in feed.items()}
        results = self._graph(names).create_infer_request().infer(feed, share_inputs=True)
        outputs = ((name, results[number][:count]) for number, name in enumerate(names))
        return [value[:, :length] if name in self._by_token else value for name, value in outputs]

    def _graph(self, names: tuple[str, ...]) -> openvino.CompiledModel:
        """The part of the graph that `names` need."""
        with self._lock:
            if names not in self._compiled:
                outputs = [self.model.output(name) for name in names]
                part = openvino.Model(outputs, self.model.get_parameters())
                settings = {
                    # Without a hint, OpenVINO chooses bfloat16 on processors that have it.
                    "INFERENCE_PRECISION_HINT": self._precision,
                    "NUM_STREAMS": self._cores,
                    "INFERENCE_NUM_THREADS": self._cores,
                    "ENABLE_CPU_PINNING": False,  # clients, and other processes, use the same cores
                }
                self._compiled[names] = self._core.compile_model(part, "CPU", settings)
            return self._compiled[names]
