"""`bert-tfx convert`: converts a BERT, RoBERTa, ELECTRA or ModernBERT between file formats."""

from __future__ import annotations

import dataclasses
import os
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bert_keras.errors import InputError

if TYPE_CHECKING:
    from bert_keras.convert.weight_copy import ReadModel, Written
    from bert_keras.saved_model.settings import EmbeddingSettings
    from bert_keras.tokenizers.vocabulary_files import Tokenizer


class ModelFormat(str, Enum):
    """A file format of models."""

    TF1 = "tf1"
    HF = "hf"
    KERAS_HUB = "keras-hub"
    BERT_TFX = "bert-tfx"
    ONNX = "onnx"


def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The folder to read; of tf1 also a checkpoint in it.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder to write: a new or empty one.")],
    from_: Annotated[ModelFormat, typer.Option("--from", help="Format of SRC.")],
    to: Annotated[ModelFormat, typer.Option("--to", help="Format of DST.")],
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="Whether the vocabulary keeps case; required if SRC does not tell."),
    ] = None,
    pooling: Annotated[
        Literal["none", "mean", "cls"] | None,
        typer.Option(help="How a text gets one vector, for `embed` and sentence-transformers; default: as SRC has it."),
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Whether that vector gets length 1.")
    ] = None,
    quantize: Annotated[
        Literal["none", "int8"] | None,
        typer.Option(help="onnx: int8 multiplies 8-bit integers."),
    ] = None,
) -> None:
    """Convert a model between file formats.

    docs/library.md has the table of formats. onnx is written, not read; a fine-tuned model with its task's head. The
    pickle in pytorch_model.bin is not run.
    """
    from bert_keras.convert.architecture import backbone_of
    from bert_keras.convert.detect import READERS, tokenizer_of, write_any
    from bert_keras.convert.tf1 import is_checkpoint
    from bert_keras.convert.weight_copy import named

    if not (os.path.isdir(source) or (from_ is ModelFormat.TF1 and is_checkpoint(source))):
        raise InputError(f"{source}: no such folder; SRC is the folder of a model")
    if os.path.isdir(target) and os.listdir(target):
        raise InputError(f"{target}: not empty; give a new folder")
    if from_ is ModelFormat.ONNX or (quantize and to is not ModelFormat.ONNX):
        raise InputError("onnx is written, not read, and only onnx is quantized: --to onnx, with or without --quantize")
    converted = READERS[from_.value](source)
    if converted.task_head:
        names, format_ = named(converted.task_head), "hf" if to is ModelFormat.ONNX else to.value
        raise InputError(
            f"{source} is a fine-tuned model, whose head ({names}) is not converted; fine-tune its encoder with "
            f"--init {source}, or write the encoder alone, in Python: bert_keras.export(bert_keras.from_checkpoint("
            f"{source!r}), {target!r}, {format_!r})"
        )
    tokenizer = tokenizer_of(converted, source, cased)
    found = converted.embedding
    normalized = found.normalize if normalize is None else normalize
    embedding = dataclasses.replace(found, pooling=pooling or found.pooling, normalize=normalized)
    if normalize is not None and embedding.pooling == "none":
        raise InputError(f"{source}: does not say how a text gets one vector; add --pooling mean or cls")
    remarks = converted.remarks
    if to is ModelFormat.ONNX:
        written, remarks = _write_onnx(converted, tokenizer, target, embedding, quantize or "none")
    else:
        parts = converted.family, converted.initialised, converted.generator
        written = write_any(to.value, converted.model, tokenizer, target, *parts, embedding, converted.max_seq_length)
    config = backbone_of(converted.model).config
    # Parts without weights are not written as ONNX.
    drawn = [] if to is ModelFormat.ONNX else [*converted.initialised, *written.drawn]
    notes = [f"NOT in {source}, initialised at random: {', '.join(drawn)}"] if drawn else []
    if converted.generator:
        left_out = f"the generator in {source} is left out"
        notes += [left_out if to in (ModelFormat.KERAS_HUB, ModelFormat.ONNX) else "with its generator"]
    if embedding.pooling != "none":
        length = ", normalised" if embedding.normalize else ""
        kept = to in (ModelFormat.HF, ModelFormat.BERT_TFX, ModelFormat.ONNX)
        notes += [f"one vector a text: {embedding.pooling}{length}" if kept else f"{to.value} has no sentence vectors"]
    shape = f"{config.num_hidden_layers} layers, {config.hidden_size} wide, {config.vocab_size:,} tokens"
    typer.echo("; ".join([f"{target}: {shape}", *notes, *remarks, *written.remarks]))


def _write_onnx(
    converted: ReadModel, tokenizer: Tokenizer | None, target: str, embedding: EmbeddingSettings, quantize: str
) -> tuple[Written, tuple[str, ...]]:
    """Write the folder; return what to say, and the reader's remarks that still hold."""
    from bert_keras.convert.weight_copy import Written

    try:
        from bert_keras.convert.onnx_folder import write_onnx
        from bert_keras.convert.onnx_graph import OPSET
    except ImportError as error:
        raise InputError(f"--to onnx needs the packages of the extra `onnx` ({error}): make setup") from error
    model, task, settings = converted.fine_tuned or (converted.model, None, None)
    length = converted.max_seq_length
    write_onnx(model, tokenizer, target, embedding, quantize, converted.initialised, task, settings, length)
    written = Written(remarks=(f"opset {OPSET}" + (", int8" if quantize == "int8" else ""),))
    # The reader says that it drops a fine-tuned model's output layer.
    return written, () if task else converted.remarks
