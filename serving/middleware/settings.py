"""Settings of the ports: limits of requests, transport and authentication, logs.

The fields with help are options of `bert-tfx serve`; docs/serving.md has the status codes.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

_MOST_BYTES = 2**31 - 1
_FILE = "FILE"


@dataclass(frozen=True)
class LimitSettings:
    """Limits for one request, and for connections. ValueError: a number is out of range.

    Attributes:
        max_request_bytes: the default is gRPC's own; the inputs are also held to it after repeated values and a context
            have been expanded.
        max_text_bytes: of one string of an input, whether a text (UTF-8) or a serialized tf.Example.
        max_answer_bytes: of the wanted outputs as sent, computed from their shapes before execution (REST: as JSON,
            four times the arrays). Eight of this size may be in flight, which take four times their size.
        max_receive_seconds: also the time for a client to take 256 KiB of its answer.
        max_head_seconds: time for a connection to send the head of a request.
        max_idle_seconds: time for a gRPC connection without a call; clients reconnect by themselves.
    """

    max_request_bytes: Annotated[int, typer.Option(help="Maximum bytes of a request.")] = 4 * 1024 * 1024
    max_rows: Annotated[int, typer.Option(help="Maximum rows of a request.")] = 4096
    max_text_bytes: Annotated[int, typer.Option(help="Maximum bytes of a text.")] = 1024 * 1024
    max_answer_bytes: Annotated[int, typer.Option(help="Maximum bytes of memory for an answer.")] = 32 * 1024 * 1024
    max_receive_seconds: Annotated[float, typer.Option(help="Maximum seconds for receiving a request.")] = 30.0
    max_connections: Annotated[int, typer.Option(help="Maximum connections of a port.")] = 500
    max_address_connections: Annotated[
        int, typer.Option(help="Maximum connections from one address (a proxy is one address).")
    ] = 250
    max_head_seconds: float = 10.0
    max_idle_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.endswith("seconds") and not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
            if not name.endswith("seconds") and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.max_request_bytes > _MOST_BYTES:
            raise ValueError(f"max_request_bytes is {self.max_request_bytes}; gRPC takes at most {_MOST_BYTES}")


@dataclass(frozen=True)
class SecuritySettings:
    """Transport and authentication; by default the server listens on loopback only, without TLS.

    A certificate comes with its chain up to the CA, its key without a pass phrase; in files of tokens `#` starts a
    comment. `serving.middleware.security` checks and reads them.
    """

    certificate_file: Annotated[
        str | None, typer.Option("--tls-certificate", metavar=_FILE, help="PEM file; both ports then require TLS.")
    ] = None
    key_file: Annotated[str | None, typer.Option("--tls-key", metavar=_FILE, help="PEM file of its key.")] = None
    client_ca_file: Annotated[
        str | None,
        typer.Option("--client-ca", metavar=_FILE, help="PEM file; clients must present a certificate of these CAs."),
    ] = None
    token_file: Annotated[
        str | None, typer.Option(metavar=_FILE, help="Bearer tokens, one per line; a request must carry one.")
    ] = None
    allow_insecure: Annotated[bool, typer.Option("--allow-insecure", help="Serve other machines without TLS.")] = False
    admin_token_file: Annotated[
        str | None,
        typer.Option(metavar=_FILE, help="Bearer tokens for changing the models by HandleReloadConfigRequest."),
    ] = None
    admin_base_paths: Annotated[
        tuple[str, ...],
        typer.Option("--admin-base-path", metavar="DIR", help="Folder from which these may load models; repeatable."),
    ] = ()


@dataclass(frozen=True)
class LogSettings:
    """The access log; after its file has been moved (logrotate), a new one is created."""

    access_log: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write a JSON line per request, without its texts.")
    ] = None
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Include the texts in the access log.")] = False
