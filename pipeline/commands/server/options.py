"""Connection options and input of the commands that query a server."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pipeline.commands.options import with_options

if TYPE_CHECKING:
    from serving.client import Client

_FILE = "FILE"
# Help of commands whose arguments `line_texts` reads.
OR_LINES = "A single `-`: the lines of standard input."
# Far below a server's limit, so that answers arrive while lines are still read.
_ROWS_OF_A_REQUEST = 32
_Row = TypeVar("_Row")


def line_texts(words: list[str]) -> Iterable[str]:
    """The arguments, or for a single `-` the lines of standard input, without bytes that are not UTF-8."""
    if words != ["-"]:
        return words
    return (line.decode("utf-8", "ignore").rstrip("\r\n") for line in sys.stdin.buffer)


def in_batches(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Split rows into lists of at most one request's rows."""
    left = iter(rows)
    while batch := list(itertools.islice(left, _ROWS_OF_A_REQUEST)):
        yield batch


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """Connection options shared by all client commands."""

    address: Annotated[str, typer.Option("--server", metavar="HOST:PORT", help="gRPC address.")] = "127.0.0.1:8500"
    model: Annotated[str, typer.Option(help="Name of the served model.")] = "bert"
    version: Annotated[int | None, typer.Option(min=0, help="Version to query (the newest).")] = None
    label: Annotated[str | None, typer.Option(help="Label to query: stable, canary.")] = None
    tls_ca: Annotated[str | None, typer.Option(metavar=_FILE, help="CA of the server (PEM); enables TLS.")] = None
    tls_certificate: Annotated[
        str | None,
        typer.Option(metavar=_FILE, help="The client's certificate (PEM)."),
    ] = None
    tls_key: Annotated[str | None, typer.Option(metavar=_FILE, help="The client's key (PEM).")] = None
    token_file: Annotated[str | None, typer.Option(metavar=_FILE, help="Bearer tokens; the first is sent.")] = None

    def client(self) -> Client:
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


with_server_options = with_options(ServerOptions, "server", make=ServerOptions)
