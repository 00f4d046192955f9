"""A folder that `bert-tfx serve` and other engines load: `model.onnx` (`graph`), `tokenizer.json`, configuration.

In int8 it has OpenVINO's own files in place of `model.onnx` (`int8`). The server reads this project's own vocabulary
files, which are there, too.
"""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx

from bert_keras import files
from bert_keras.convert.architecture import backbone_of
from bert_keras.convert.model_folder import ModelFolder, Written, check_tokenizer
from bert_keras.convert.onnx.graph import OPSET, onnx_model
from bert_keras.convert.onnx.network import BFLOAT16, MODEL_FILE
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
    vocabulary_spec,
    write_vocabulary,
)


def write_graph(
    model: Any,
    tokenizer: Any,
    directory: str,
    embedding: EmbeddingSettings,
    precision: str,
    untrained: Collection[Part] = (),
) -> None:
    """Write `model.onnx` and `tokenizer.json`.

    `precision`: of the computation; with `mixed_bfloat16` as `ExportSettings` says. Weights are float32. InputError:
    the model has LSTMs.
    """
    proto = onnx_model(model, embedding, untrained)
    if precision != "float32":
        onnx.helper.set_model_props(proto, {BFLOAT16: "true"})
    onnx.save(proto, os.path.join(directory, MODEL_FILE))
    fast_tokenizer(tokenizer).save(os.path.join(directory, FAST_TOKENIZER_FILE))


def write_onnx(
    folder: ModelFolder, directory: str, quantize: str, calibration: Sequence[Mapping[str, Any]] = ()
) -> Written:
    """Write a new folder: the graph, this project's configuration and vocabulary, and the task of a task model.

    `quantize`: `none`, or `int8`. `calibration`: int8: rows (`bert_keras.convert.onnx.int8.quantize_folder`).
    InputError: as in `write_graph` and `quantize_folder`; there is no vocabulary, or it is another model's. Nothing is
    written.
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
        write_graph(folder.model, tokenizer, temporary, folder.embedding, "float32", folder.untrained)
        files.write_text(temporary, CONFIG_FILE, backbone.config.to_json(**fields))
        files.write_json(temporary, VOCABULARY_SPEC_FILE, vocabulary_spec(tokenizer))
        write_vocabulary(temporary, tokenizer)
        if folder.task and folder.settings:
            files.write_text(temporary, TASK_SPEC_FILE, TaskSpec(folder.task, counts={}).to_json())
            files.write_json(temporary, TASK_SETTINGS_FILE, dataclasses.asdict(folder.settings))
        if quantize == "none":
            return Written(remarks=(f"opset {OPSET}",))
        from bert_keras.convert.onnx.int8 import quantize_folder  # a server needs no NNCF

        return Written(remarks=(quantize_folder(temporary, calibration),))
