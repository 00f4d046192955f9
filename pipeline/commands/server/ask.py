"""Queries to a served pre-trained model: `fill-mask`, `encode`."""

from __future__ import annotations

from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.commands.server.options import OR_LINES, ServerOptions, in_batches, line_texts, with_server_options


@with_server_options
def fill_mask(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help=f"Texts with at least one [MASK]. {OR_LINES}")],
    server: ServerOptions,
) -> None:
    """Print the five most likely tokens for each [MASK].

    A text without a mask within the model's length is refused. Bytes that are not UTF-8 are dropped.
    """
    with server.client() as client:
        for batch in in_batches(line_texts(texts)):
            print_masks(batch, client.fill_mask(batch))


@with_server_options
def encode(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help=f"Texts to encode. {OR_LINES}")],
    server: ServerOptions,
) -> None:
    """Print the vector of each text as JSON.

    It is the signature `embed`'s, else the trained pooler's.
    """
    import json

    with server.client() as client:
        has_embed = "embed" in client.metadata()
        name = "embedding" if has_embed else "pooled_output"
        for batch in in_batches(line_texts(texts)):
            answers = {name: client.embed(batch)} if has_embed else client.encode(batch)
            if name not in answers:
                raise InputError(
                    "the served model has no pooled_output: its pooler was not trained (next sentences or a "
                    "classification train it); export it with --set export.embedding.pooling=mean"
                )
            for text, vector in zip(batch, answers[name], strict=True):
                typer.echo(json.dumps({"text": text, name: [round(float(x), 6) for x in vector]}))


def print_masks(texts: list[str], answers: list) -> None:
    for text, masks in zip(texts, answers, strict=True):
        typer.echo(text)
        for number, candidates in enumerate(masks, 1):
            for token, score in candidates:
                typer.echo(f"  {f'[MASK] {number}: ' if len(masks) > 1 else ''}{token:<20} {score:7.2%}")
