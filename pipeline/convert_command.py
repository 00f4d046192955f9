"""`bert-tfx convert`: a BERT from one program's files to another's."""

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
    """A BERT's weights, heads and vocabulary from one program's files to another's.

    tf1: google-research/bert's checkpoints. hf: Hugging Face's folders, safetensors alone. bert-tfx: what the pipeline
    pushes, a SavedModel that takes raw text (`bert-tfx serve --model-dir`), with its weights. Nothing is unpickled.
    """
    from bert_keras.heads import BertForPreTraining
    from bert_keras.interchange import huggingface, pushed, tf1
    from bert_keras.tokenizer import BertTokenizer

    formats = {
        ModelFormat.TF1: (tf1.read_tf1, tf1.write_tf1),
        ModelFormat.HF: (huggingface.read_huggingface, huggingface.write_huggingface),
        ModelFormat.BERT_TFX: (pushed.read_pushed, pushed.write_pushed),
    }
    if not os.path.isdir(source):
        raise InputError(f"{source}: no such folder; SRC is the folder of a model")
    if os.path.isdir(target) and os.listdir(target):
        raise InputError(f"{target}: is not empty; give a new folder")
    read, write = formats[from_][0], formats[to][1]
    found = read(source)
    tokenizer = None
    if found.vocabulary is not None:
        lower_case = found.lower_case if cased is None else not cased
        if lower_case is None:
            raise InputError(f"{source}: does not say whether its vocabulary is lower-cased: give --cased or --uncased")
        try:
            tokenizer = BertTokenizer(found.vocabulary, lower_case)
        except ValueError as error:
            raise InputError(f"{source}: {error}") from error
    write(found.model, tokenizer, target)
    config = found.model.config
    drawn = list(found.initialised)
    if to is ModelFormat.BERT_TFX and not isinstance(found.model, BertForPreTraining):
        drawn += ["masked-LM head", "next-sentence head"]
    typer.echo(
        f"{target}: {config.num_hidden_layers} layers, {config.hidden_size} wide, {config.vocab_size:,} tokens"
        + (f"; NOT in {source}, and therefore drawn at random: {', '.join(drawn)}" if drawn else "")
    )
