"""The graph of a folder, computed by OpenVINO on the processor."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

import numpy as np
import openvino

from bert_keras.errors import InputError

# The float32 graph, and the int8 graph in OpenVINO's own format, which has its weights in a second file.
MODEL_FILE, INT8_FILE, INT8_WEIGHTS_FILE = "model.onnx", "openvino_model.xml", "openvino_model.bin"
# Properties of `model.onnx`: to be computed in bfloat16; quantized by ONNX Runtime, in releases before OpenVINO.
BFLOAT16, _QUANTIZED = "bfloat16", "onnx.quant.pre_process"
# Threads of one call; more do not help a short text.
_MOST_CORES = 4
# Sequences are padded to a multiple: OpenVINO compiles operations for each shape and keeps them (decision 54).
# Files have calls of fewer shapes than requests.
_LENGTH_STEP, _LENGTH_STEP_OF_FILES = 16, 8


class Network:
    """The graph of `openvino_model.xml` or `model.onnx`. Thread-safe.

    Args:
        directory: the folder.
        cores: calls at a time, each on a core of its own; a float32 call that finds no other under way uses several.
        whole_files: the calls are those of whole files: each on one core, so that answers do not depend on the others.

    Raises:
        InputError: the file is damaged, or was quantized for ONNX Runtime.

    Attributes:
        inputs: their names.
        length_step: sequences are padded to multiples of it.
        outputs: their shapes by name, -1 for an unknown size.
    """

    def __init__(self, directory: str, cores: int, whole_files: bool = False):
        int8 = os.path.join(directory, INT8_FILE)
        path = int8 if os.path.exists(int8) else os.path.join(directory, MODEL_FILE)
        self._core, self._cores = openvino.Core(), cores
        # Threads cost an int8 call more processor time than it has to divide.
        self._threads = 1 if whole_files or path == int8 else min(cores, _MOST_CORES)
        self.length_step = _LENGTH_STEP_OF_FILES if whole_files else _LENGTH_STEP
        try:
            self.model = self._core.read_model(path)
        except RuntimeError as error:
            raise InputError(f"{path}: OpenVINO cannot read it ({error}); convert the model again") from error
        if self.model.has_rt_info(["framework", _QUANTIZED]):
            raise InputError(
                f"{path}: int8 of an earlier release, for ONNX Runtime; convert the model again with --quantize int8"
            )
        # Without a hint, OpenVINO chooses bfloat16 on processors that have it.
        self._precision = "bf16" if self.model.has_rt_info(["framework", BFLOAT16]) else "f32"
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
        self._compiled: dict[tuple[tuple[str, ...], int], openvino.CompiledModel] = {}
        self._calls, self._lock = 0, threading.Lock()

    def compute(self, feed: Mapping[str, np.ndarray], names: tuple[str, ...]) -> list[np.ndarray]:
        """The outputs `names` for inputs int64 [B, ..., T]."""
        length = feed["input_ids"].shape[-1]
        padding = [(0, 0)] * (feed["input_ids"].ndim - 1) + [(0, -length % self.length_step)]
        feed = {name: np.pad(value, padding) for name, value in feed.items()}
        with self._lock:
            self._calls += 1
            graph = self._graph(names, self._threads if self._calls == 1 else 1)
        try:
            results = graph.create_infer_request().infer(feed, share_inputs=True)
        finally:
            with self._lock:
                self._calls -= 1
        outputs = ((name, results[number]) for number, name in enumerate(names))
        return [value[:, :length] if name in self._by_token else value for name, value in outputs]

    def _graph(self, names: tuple[str, ...], threads: int) -> openvino.CompiledModel:
        """The part of the graph that `names` need, for calls on `threads` cores each."""
        if (names, threads) not in self._compiled:
            outputs = [self.model.output(name) for name in names]
            part = openvino.Model(outputs, self.model.get_parameters())
            settings = {
                "INFERENCE_PRECISION_HINT": self._precision,
                "NUM_STREAMS": 1 if threads > 1 else self._cores,
                "INFERENCE_NUM_THREADS": max(threads, self._cores),
                "ENABLE_CPU_PINNING": False,  # clients, and other processes, use the same cores
            }
            self._compiled[names, threads] = self._core.compile_model(part, "CPU", settings)
        return self._compiled[names, threads]
