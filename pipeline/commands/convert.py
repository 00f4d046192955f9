"""`bert-tfx convert`: converts a BERT, RoBERTa, ELECTRA or ModernBERT between file formats."""

from __future__ import annotations

import dataclasses
import os
from enum import Enum
from typing import Annotated, Literal

import typer

from bert_keras.errors import InputError


class ModelFormat(str, Enum):
    """A file format of models."""

    TF1 = "tf1"
    HF = "hf"
    KERAS_HUB = "keras-hub"
    BERT_TFX = "bert-tfx"


def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The folder to read.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder to write: a new or empty one.")],
    from_: Annotated[ModelFormat, typer.Option("--from", help="Format of SRC.")],
    to: Annotated[ModelFormat, typer.Option("--to", help="Format of DST.")],
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="Whether the vocabulary keeps case; required if SRC does not tell."),
    ] = None,
    pooling: Annotated[
        Literal["none", "mean", "cls"] | None,
        typer.Option(
            help="How a text gets one vector (bert-tfx: the signature `embed`; hf: files of sentence-transformers); by "
            "default as SRC has it."
        ),
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Whether that vector gets length 1.")
    ] = None,
) -> None:
    """Convert a model's weights, heads and vocabulary between file formats.

    tf1: checkpoints of google-research/bert and of google-research/electra. hf: Hugging Face folders of a BERT,
    RoBERTa, ELECTRA (generator or discriminator) or ModernBERT, safetensors only. keras-hub: presets of the first
    three. bert-tfx: a pushed model, that is a SavedModel that takes raw text (`bert-tfx serve --model-dir`), with its
    weights. An ELECTRA is written with its generator where SRC has it: to generator/ of an hf folder, not to a preset.
    Pickle files are never loaded.
    """
    from bert_keras.convert.architecture import architecture_of
    from bert_keras.convert.detect import READERS, tokenizer_of, write_any

    if not os.path.isdir(source):
        raise InputError(f"{source}: no such folder; SRC is the folder of a model")
    if os.path.isdir(target) and os.listdir(target):
        raise InputError(f"{target}: not empty; give a new folder")
    converted = READERS[from_.value](source)
    tokenizer = tokenizer_of(converted, source, cased)
    found = converted.embedding
    normalized = found.normalize if normalize is None else normalize
    embedding = dataclasses.replace(found, pooling=pooling or found.pooling, normalize=normalized)
    if normalize is not None and embedding.pooling == "none":
        raise InputError(f"{source}: does not say how a text gets one vector; give --pooling mean or cls, too")
    parts = converted.family, converted.initialised, converted.generator
    written = write_any(to.value, converted.model, tokenizer, target, *parts, embedding)
    config = architecture_of(converted.model, converted.family).encoder
    drawn = [*converted.initialised, *written.drawn]
    notes = [f"NOT in {source}, initialised at random: {', '.join(drawn)}"] if drawn else []
    if converted.generator:
        left_out = f"the generator in {source} is left out"
        notes += [left_out if to is ModelFormat.KERAS_HUB else "with its generator"]
    if embedding.pooling != "none":
        length = ", normalised" if embedding.normalize else ""
        kept = to in (ModelFormat.HF, ModelFormat.BERT_TFX)
        notes += [f"one vector a text: {embedding.pooling}{length}" if kept else f"{to.value} has no sentence vectors"]
    shape = f"{config.num_hidden_layers} layers, {config.hidden_size} wide, {config.vocab_size:,} tokens"
    typer.echo("; ".join([f"{target}: {shape}", *notes, *converted.remarks, *written.remarks]))
