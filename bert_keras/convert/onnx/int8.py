"""A folder's graph in 8-bit integers, by NNCF.

Matrix products get weights with a scale a column, and inputs with a scale that was measured on rows (calibration), so
that a row's answer does not depend on the others of its call. SmoothQuant moves outliers of the inputs into the weights
(Xiao et al., 2022, https://arxiv.org/abs/2211.10438).
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

import nncf
import numpy as np
import openvino

from bert_keras.convert.onnx.answers import OnnxModel, encoded
from bert_keras.convert.onnx.network import INT8_FILE, MODEL_FILE, OpenVino
from bert_keras.errors import InputError

# Rows that scales are measured on, chosen with this seed: with more, MiniLM's vectors do not come closer.
CALIBRATION_ROWS, _SEED = 300, 0


class _Recorder(OpenVino):
    """A graph that keeps its inputs: calibration sees what the engine will."""

    def __init__(self, directory: str):
        super().__init__(os.path.join(directory, MODEL_FILE), 1, False, "f32")
        self.feeds: list[Mapping[str, np.ndarray]] = []

    def compute(self, feed: Mapping[str, np.ndarray], names: tuple[str, ...]) -> list[np.ndarray]:
        self.feeds.append(feed)
        return super().compute(feed, names)


def quantize_folder(directory: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write `openvino_model.xml` and `.bin` in place of `model.onnx`; the same for the same rows.

    Word embeddings, and the product of the masked-LM head with them, stay float32. The file says in `rt_info` how many
    rows it was calibrated on, which seed chose them, and the SHA-256 of their JSON. `rows`: a text, or texts, for each
    input of the folder's task; of a pre-trained model `text` alone. Returns what was calibrated, in words. InputError:
    there are no rows.
    """
    model = OnnxModel(directory)
    name = "serving_default" if model.task else "encode"
    chosen = random.Random(_SEED).sample(list(rows), min(len(rows), CALIBRATION_ROWS))
    if not chosen:
        raise InputError("int8 needs rows to calibrate on: give some hundred texts like those to be answered")
    model.network = recorder = _Recorder(directory)
    signature = model.signatures[name]
    for row in chosen:
        signature.answer(*(np.array([encoded(row[key])], object) for key in signature.inputs))
    graph = recorder.model
    vocabulary = [
        op.get_friendly_name()
        for op in graph.get_ops()
        if op.get_type_name() == "MatMul" and op.get_output_partial_shape(0)[-1] == len(model.vocabulary)
    ]
    nncf.set_log_level(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()):  # bars of progress
        quantized = nncf.quantize(
            graph,
            nncf.Dataset(recorder.feeds),
            model_type=nncf.ModelType.TRANSFORMER,
            preset=nncf.QuantizationPreset.MIXED,
            subset_size=len(recorder.feeds),
            # Corrected biases take twice the time and change the mean cosine of MiniLM's vectors by 2e-5.
            advanced_parameters=nncf.AdvancedQuantizationParameters(disable_bias_correction=True),
            ignored_scope=nncf.IgnoredScope(types=["Gather"], names=vocabulary, validate=False),
        )
    # The libraries name operations by counters of the process.
    for number, op in enumerate(quantized.get_ordered_ops()):
        op.set_friendly_name(f"{op.get_type_name()}_{number}")
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()
    for key, value in (("rows", str(len(chosen))), ("seed", str(_SEED)), ("sha256", digest)):
        quantized.set_rt_info(value, ["calibration", key])
    openvino.save_model(quantized, os.path.join(directory, INT8_FILE), compress_to_fp16=False)
    os.remove(os.path.join(directory, MODEL_FILE))
    return f"int8, calibrated on {len(chosen)} rows"
