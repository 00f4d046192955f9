"""A folder that ONNX Runtime and other engines load: `model.onnx` (`onnx_graph`), `tokenizer.json`, configuration.

`bert-tfx serve --engine onnxruntime` serves it; it reads this project's own vocabulary files, which are there, too.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from bert_keras import files
from bert_keras.convert.architecture import backbone_of
from bert_keras.convert.onnx_answers import MODEL_FILE as MODEL_FILE
from bert_keras.convert.onnx_answers import QUANTIZED
from bert_keras.convert.onnx_graph import onnx_model
from bert_keras.errors import InputError
from bert_keras.models.config import Part
from bert_keras.saved_model.saved_model_files import CONFIG_FILE, embedding_fields, vocabulary_spec
from bert_keras.saved_model.settings import LENGTH_FIELD, EmbeddingSettings
from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TASK_SPEC_FILE, TaskSettings, TaskSpec
from bert_keras.tokenizers.fast_tokenizer import fast_tokenizer
from bert_keras.tokenizers.vocabulary_files import (
    FAST_TOKENIZER_FILE,
    VOCABULARY_SPEC_FILE,
    Tokenizer,
    check_tokenizer,
    write_vocabulary,
)

if TYPE_CHECKING:
    from bert_keras.tasks.table import Task


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


def write_onnx(
    model: Any,
    tokenizer: Tokenizer | None,
    directory: str,
    embedding: EmbeddingSettings,
    quantize: str,
    untrained: Collection[Part] = (),
    task: Task | None = None,
    settings: TaskSettings | None = None,
    max_seq_length: int | None = None,
) -> None:
    """Write a new folder: `write_graph`, this project's configuration and vocabulary, and the task of a task model.

    Args:
        max_seq_length: as in `ReadModel`; a task model has it in `settings`.

    Raises:
        InputError: as in `write_graph`; there is no vocabulary, or it is another model's. Nothing is written.
    """
    if tokenizer is None:
        raise InputError("tokenizer.json needs a vocabulary: give a source with one")
    backbone = backbone_of(model)
    check_tokenizer(tokenizer, backbone.config.vocab_size)
    further: dict[str, Any] = {"untrained_parts": list(untrained)} if untrained else {}
    if backbone.embedding_size != backbone.config.hidden_size:
        further["embedding_size"] = backbone.embedding_size
    if max_seq_length:
        further[LENGTH_FIELD] = max_seq_length
    with files.staged(directory) as temporary:
        write_graph(model, tokenizer, temporary, embedding, quantize, untrained)
        files.write_text(temporary, CONFIG_FILE, backbone.config.to_json(**further, **embedding_fields(embedding)))
        files.write_json(temporary, VOCABULARY_SPEC_FILE, vocabulary_spec(tokenizer))
        write_vocabulary(temporary, tokenizer)
        if task and settings:
            files.write_text(temporary, TASK_SPEC_FILE, TaskSpec(task, counts={}).to_json())
            files.write_json(temporary, TASK_SETTINGS_FILE, dataclasses.asdict(settings))
