"""Queries to a served model: `fill-mask` and `encode` of a pre-trained one, `predict` of a fine-tuned one."""

import dataclasses
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import with_options

if TYPE_CHECKING:
    from serving.client import Client

_FILE = "FILE"
_OR_LINES = "A single `-`: the lines of standard input."
# Far below a server's limit, so that answers arrive while lines are still read.
_ROWS_OF_A_REQUEST = 32
# Inputs of the served models, by task, in the order of the arguments; the last input takes all remaining ones.
_INPUTS = (("text",), ("text", "text_pair"), ("question", "context"), ("text", "choices"))
_Row = TypeVar("_Row")


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """Connection options shared by all client commands."""

    address: Annotated[str, typer.Option("--server", metavar="HOST:PORT", help="gRPC address.")] = "127.0.0.1:8500"
    model: Annotated[str, typer.Option(help="Name of the served model.")] = "bert"
    version: Annotated[int | None, typer.Option(min=0, help="Version to query (the newest).")] = None
    label: Annotated[str | None, typer.Option(help="Label to query: stable, canary.")] = None
    tls_ca: Annotated[str | None, typer.Option(metavar=_FILE, help="CA of the server (PEM); enables TLS.")] = None
    tls_certificate: Annotated[str | None, typer.Option(metavar=_FILE, help="The client's certificate (PEM).")] = None
    tls_key: Annotated[str | None, typer.Option(metavar=_FILE, help="The client's key (PEM).")] = None
    token_file: Annotated[str | None, typer.Option(metavar=_FILE, help="Bearer tokens; the first is sent.")] = None

    def client(self) -> "Client":
        """A client with these options.

        ClientError: a file is missing, or the token would be sent in the clear. SettingsError: a bad token file.
        """
        from serving.client import Client
        from serving.middleware.security import read_tokens

        return Client(
            self.address,
            self.model,
            ca_file=self.tls_ca,
            certificate=self.tls_certificate,
            key=self.tls_key,
            token=None if self.token_file is None else read_tokens(self.token_file)[0],
            version_label=self.label,
            version=self.version,
        )


_with_server_options = with_options(ServerOptions, "server", make=ServerOptions)


@_with_server_options
def fill_mask(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help=f"Texts with at least one [MASK]. {_OR_LINES}")],
    server: ServerOptions,
) -> None:
    """Print the five most likely tokens for each [MASK].

    A text without a mask within the model's length is refused. Bytes that are not UTF-8 are dropped.
    """
    with server.client() as client:
        for batch in _in_batches(_line_texts(texts)):
            print_masks(batch, client.fill_mask(batch))


@_with_server_options
def encode(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help=f"Texts to encode. {_OR_LINES}")],
    server: ServerOptions,
) -> None:
    """Print the vector of each text as JSON.

    It is the signature `embed`'s, else the trained pooler's.
    """
    with server.client() as client:
        has_embed = "embed" in client.metadata()
        name = "embedding" if has_embed else "pooled_output"
        for batch in _in_batches(_line_texts(texts)):
            answers = {name: client.embed(batch)} if has_embed else client.encode(batch)
            if name not in answers:
                raise InputError(
                    "the served model has no pooled_output: its pooler was not trained (next sentences or a "
                    "classification train it); export it with --set export.embedding.pooling=mean"
                )
            for text, vector in zip(batch, answers[name], strict=True):
                typer.echo(json.dumps({"text": text, name: [round(float(x), 6) for x in vector]}))


@_with_server_options
def predict(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="A text; a text and its pair; a question and its context; a text and its choices. "
            "A single `-`: lines of standard input, with tabs between their texts.",
        ),
    ],
    server: ServerOptions,
) -> None:
    """Print a fine-tuned model's answer to each row as JSON."""
    from serving.models.servable import DEFAULT_SIGNATURE

    with server.client() as client:
        model_inputs = set(client.metadata()[DEFAULT_SIGNATURE].inputs)
        inputs = next((names for names in _INPUTS if set(names) == model_inputs), None)
        if inputs is None:
            raise InputError(
                f"the model at {server.address} takes {', '.join(sorted(model_inputs))}: it is not a fine-tuned model"
            )
        takes = f"the model at {server.address} takes {len(inputs)}: {', '.join(inputs)}"
        for batch in _in_batches(_rows(texts, inputs, takes)):
            # All rows of a request need the same number of choices.
            for _, alike in itertools.groupby(batch, key=len):
                columns = list(zip(*alike, strict=True))
                columns_by_input = dict(zip(inputs, map(list, columns), strict=False))
                if "choices" in inputs:
                    columns_by_input["choices"] = [list(choices) for choices in zip(*columns[1:], strict=True)]
                answers = client.predict(columns_by_input)
                for row in zip(*answers.values(), strict=True):
                    named = dict(zip(answers, row, strict=True))
                    typer.echo(json.dumps(named, ensure_ascii=False, default=_plain))


def print_masks(texts: list[str], answers: list) -> None:
    for text, masks in zip(texts, answers, strict=True):
        typer.echo(text)
        for number, candidates in enumerate(masks, 1):
            for token, score in candidates:
                typer.echo(f"  {f'[MASK] {number}: ' if len(masks) > 1 else ''}{token:<20} {score:7.2%}")


def _line_texts(words: list[str]) -> Iterable[str]:
    """The arguments, or for a single `-` the lines of standard input, without bytes that are not UTF-8."""
    if words != ["-"]:
        return words
    return (line.decode("utf-8", "ignore").rstrip("\r\n") for line in sys.stdin.buffer)


def _in_batches(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    left = iter(rows)
    while batch := list(itertools.islice(left, _ROWS_OF_A_REQUEST)):
        yield batch


def _rows(texts: list[str], inputs: tuple[str, ...], takes: str) -> Iterator[list[str]]:
    """The texts of each row: the arguments, or the fields of each line of standard input."""
    lines = texts == ["-"]
    for number, fields in enumerate((line.split("\t") for line in _line_texts(texts)) if lines else [texts], 1):
        if len(fields) != len(inputs) and not ("choices" in inputs and len(fields) > len(inputs)):
            where = f"standard input, line {number}: " if lines else ""
            raise InputError(f"{where}{len(fields)} text(s) given; {takes}")
        yield fields


def _plain(value: Any) -> Any:
    """JSON of bytes, and of NumPy's arrays and numbers."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value.tolist()
