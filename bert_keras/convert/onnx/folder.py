"""A folder that ONNX Runtime and other engines load: `model.onnx` (`graph`), `tokenizer.json`, configuration.

`bert-tfx serve --engine onnxruntime` serves it; it reads this project's own vocabulary files, which are there, too.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from typing import Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from bert_keras import files
from bert_keras.convert.architecture import backbone_of
from bert_keras.convert.model_folder import ModelFolder, Written
from bert_keras.convert.onnx.answers import MODEL_FILE as MODEL_FILE
from bert_keras.convert.onnx.answers import QUANTIZED
from bert_keras.convert.onnx.graph import OPSET, onnx_model
from bert_keras.errors import InputError
from bert_keras.models.config import Part
from bert_keras.saved_model.settings import (
    CONFIG_FILE,
    LENGTH_FIELD,
    UNTRAINED_FIELD,
    EmbeddingSettings,
    embedding_fields,
)
from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TASK_SPEC_FILE, TaskSpec
from bert_keras.tokenizers.fast_tokenizer import fast_tokenizer
from bert_keras.tokenizers.vocabulary_files import (
    FAST_TOKENIZER_FILE,
    VOCABULARY_SPEC_FILE,
    check_tokenizer,
    vocabulary_spec,
    write_vocabulary,
)


def write_graph(
    model: Any,
    tokenizer: Any,
    directory: str,
    embedding: EmbeddingSettings,
    quantize: str,
    untrained: Collection[Part] = (),
) -> None:
    """Write `model.onnx` and `tokenizer.json`.

    Args:
        quantize: `none`, or `int8`: the encoder's and the task head's products have 8-bit weights, one scale a column,
            and inputs that are rounded to 8 bits, one scale a call (ONNX Runtime's dynamic quantisation). Weights have
            7 of them: with 8, processors without VNNI would compute other sums.

    Raises:
        InputError: the model has LSTMs.
    """
    path = os.path.join(directory, MODEL_FILE)
    proto = onnx_model(model, embedding, untrained)
    if quantize == "int8":
        onnx.helper.set_model_props(proto, dict([QUANTIZED]))
    onnx.save(proto, path)
    if quantize == "int8":
        settings = {"op_types_to_quantize": ["MatMul"], "per_channel": True, "reduce_range": True}
        constants = {"MatMulConstBOnly": True}
        quantize_dynamic(path, path, weight_type=QuantType.QInt8, extra_options=constants, **settings)
    fast_tokenizer(tokenizer).save(os.path.join(directory, FAST_TOKENIZER_FILE))


def write_onnx(folder: ModelFolder, directory: str, quantize: str) -> Written:
    """Write a new folder: `write_graph`, this project's configuration and vocabulary, and the task of a task model.

    Raises:
        InputError: as in `write_graph`; there is no vocabulary, or it is another model's. Nothing is written.
    """
    tokenizer, backbone = folder.tokenizer, backbone_of(folder.model)
    if tokenizer is None:
        raise InputError("tokenizer.json needs a vocabulary: give a source with one")
    check_tokenizer(tokenizer, backbone.config.vocab_size)
    fields = {**folder.record(), **embedding_fields(folder.embedding)}
    fields |= {UNTRAINED_FIELD: list(folder.untrained)} if folder.untrained else {}
    fields |= {LENGTH_FIELD: folder.max_seq_length} if folder.max_seq_length else {}
    if backbone.embedding_size != backbone.config.of_width().hidden_size:
        fields["embedding_size"] = backbone.embedding_size
    with files.staged(directory) as temporary:
        write_graph(folder.model, tokenizer, temporary, folder.embedding, quantize, folder.untrained)
        files.write_text(temporary, CONFIG_FILE, backbone.config.to_json(**fields))
        files.write_json(temporary, VOCABULARY_SPEC_FILE, vocabulary_spec(tokenizer))
        write_vocabulary(temporary, tokenizer)
        if folder.task and folder.settings:
            files.write_text(temporary, TASK_SPEC_FILE, TaskSpec(folder.task, counts={}).to_json())
            files.write_json(temporary, TASK_SETTINGS_FILE, dataclasses.asdict(folder.settings))
    return Written(remarks=(f"opset {OPSET}" + (", int8" if quantize == "int8" else ""),))
