"""`bert-tfx convert`: a BERT, RoBERTa or ELECTRA from one program's files to another's."""

from __future__ import annotations

import os
from enum import Enum
from typing import Annotated

import typer

from bert_keras.errors import InputError


class ModelFormat(str, Enum):
    """Whose files."""

    TF1 = "tf1"
    HF = "hf"
    KERAS_HUB = "keras-hub"
    BERT_TFX = "bert-tfx"


def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The folder to read.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder to write: a new or empty one.")],
    from_: Annotated[ModelFormat, typer.Option("--from", help="Whose files SRC has.")],
    to: Annotated[ModelFormat, typer.Option("--to", help="Whose files DST gets.")],
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="Whether the vocabulary keeps case; needed if SRC does not say."),
    ] = None,
) -> None:
    """A model's weights, heads and vocabulary from one program's files to another's.

    tf1: google-research/bert's checkpoints. hf: Hugging Face's folders of a BERT, RoBERTa or ELECTRA (generator or
    discriminator), safetensors alone. keras-hub: its presets of the three. bert-tfx: what the pipeline pushes, a
    SavedModel that takes raw text (`bert-tfx serve --model-dir`), with its weights. tf1 and bert-tfx hold a BERT alone.
    Nothing is unpickled.
    """
    from bert_keras.interchange import huggingface, presets, pushed, tf1
    from bert_keras.interchange.any_format import READERS, tokenizer_of
    from bert_keras.interchange.architecture import architecture_of

    writers = {
        ModelFormat.TF1: tf1.write_tf1,
        ModelFormat.HF: huggingface.write_huggingface,
        ModelFormat.KERAS_HUB: presets.write_keras_hub,
        ModelFormat.BERT_TFX: pushed.write_pushed,
    }
    if not os.path.isdir(source):
        raise InputError(f"{source}: no such folder; SRC is the folder of a model")
    if os.path.isdir(target) and os.listdir(target):
        raise InputError(f"{target}: is not empty; give a new folder")
    found = READERS[from_.value](source)
    written = writers[to](found.model, tokenizer_of(found, source, cased), target, found.family)
    config = architecture_of(found.model, found.family).encoder
    drawn = [*found.initialised, *written.drawn]
    notes = [f"NOT in {source}, and therefore drawn at random: {', '.join(drawn)}"] if drawn else []
    shape = f"{config.num_hidden_layers} layers, {config.hidden_size} wide, {config.vocab_size:,} tokens"
    typer.echo("; ".join([f"{target}: {shape}", *notes, *found.remarks, *written.remarks]))
