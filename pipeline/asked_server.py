"""Options of the commands that ask a server: which one, how it is reached, and which of its versions answers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from serving.client import Client

_FILE = "FILE"


@dataclasses.dataclass(frozen=True)
class AskedServer:
    """Whom a command asks, and how; each field is an option of every such command.

    Attributes:
        address: HOST:PORT of the gRPC port.
        model: the served name.
        version: of the model; None: the newest that is served, or the one of `label`.
        label: what the version is called, such as `stable`.
        tls_ca: PEM, the CAs that may have signed the server's certificate; with it, TLS is spoken.
        tls_certificate: PEM, the client's own, for a server that asks for one.
        tls_key: PEM, its key.
        token_file: whose first bearer token is sent; the file may be the server's (`serving.security`).
    """

    address: Annotated[str, typer.Option("--server", metavar="HOST:PORT", help="The gRPC address of the server.")] = (
        "127.0.0.1:8500"
    )
    model: Annotated[str, typer.Option(help="The name that the model is served by.")] = "bert"
    version: Annotated[
        int | None, typer.Option(min=0, help="The version that answers, instead of the newest that is served.")
    ] = None
    label: Annotated[str | None, typer.Option(help="The label of the version that answers: stable, canary.")] = None
    tls_ca: Annotated[
        str | None, typer.Option(metavar=_FILE, help="PEM, the CA of the server's certificate; with it, TLS is spoken.")
    ] = None
    tls_certificate: Annotated[
        str | None, typer.Option(metavar=_FILE, help="PEM, of this client, for a server that asks for one.")
    ] = None
    tls_key: Annotated[str | None, typer.Option(metavar=_FILE, help="PEM, its key.")] = None
    token_file: Annotated[
        str | None, typer.Option(metavar=_FILE, help="Bearer tokens, one a line; the first one is sent.")
    ] = None

    def client(self) -> Client:
        """A client of it.

        Raises:
            ClientError: a file is missing, from the options or from the disk; or the token would go out in the clear.
            SettingsError: the token file is no good.
        """
        from serving.client import Client
        from serving.security import read_tokens

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


def asks_server(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer out of one with an argument `server`, an `AskedServer`: its options take the place of it."""
    hints = typing.get_type_hints(AskedServer, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(AskedServer)
    ]

    @functools.wraps(command)
    def asking(**given: Any) -> None:
        server = AskedServer(**{option.name: given.pop(option.name) for option in options})
        command(**given, server=server)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "server"]
    # typer reads both.
    asking.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    asking.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *options)}
    return asking
