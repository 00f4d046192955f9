"""Who may call the server, and what protects the wire: TLS, mutual TLS, bearer tokens.

What is protected by what:

| | TLS, client certificate | token |
|---|---|---|
| gRPC: every method of every service, server reflection too | yes | yes |
| gRPC: `grpc.health.v1` | yes | no: a probe carries none, and learns only that the server is up |
| REST: every other path, `/monitoring/prometheus/metrics` too | yes | yes: it tells which models there are |
| REST: the files of the page at `/` (`serving.page`) | yes | no: they hold no secret, and ask for a token to send |

Kubernetes' own gRPC probe speaks no TLS: with it, probe with `grpc_health_probe -tls` inside the container.

Files are read again when they change, looked at no more than once in RELOAD_SECONDS: new certificates, a new CA and
new tokens hold from the next connection, or request, on. A file that turned bad is reported, and what it held before
stays in force; so a token is taken away by a file without it, not by an empty one.
"""

import hashlib
import hmac
import ipaddress
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import grpc
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import SettingsError, file_reason

log = logging.getLogger(__name__)

RELOAD_SECONDS = 1.0
# Below it, guessing is within reach.
MIN_TOKEN_CHARS = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_OPEN_METHODS = "/grpc.health.v1.Health/"
_REFUSAL = "no valid bearer token: send `authorization: Bearer TOKEN`"
_HANDLERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
T = TypeVar("T")


@dataclass(frozen=True)
class SecuritySettings:
    """What protects the server; by default it listens on loopback only, in the clear.

    Attributes:
        certificate_file: PEM, the server's certificate and those up to its CA; with it, both ports speak only TLS.
        key_file: PEM, the key of that certificate, without a pass phrase.
        client_ca_file: PEM, CAs: a client must show a certificate that one of them signed (mutual TLS).
        token_file: a bearer token a line, `#` begins a comment; a request must carry one of them.
        allow_insecure: listen on an address that is not loopback without TLS.
    """

    certificate_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None
    token_file: str | None = None
    allow_insecure: bool = False

    def check(self, host: str) -> None:
        """SettingsError where `host` must not be listened on like this, or where a file is missing from a set."""
        if (self.certificate_file is None) != (self.key_file is None):
            raise SettingsError("TLS takes a certificate and its key: give both files, or neither")
        if self.client_ca_file is not None and self.certificate_file is None:
            raise SettingsError("client certificates are asked for over TLS only: give a certificate and its key, too")
        if self.certificate_file is None and not self.allow_insecure and not is_loopback(host):
            raise SettingsError(
                f"refused to listen on {host} without TLS: texts and tokens would travel in the clear;"
                " give a certificate and its key, or allow it explicitly (--allow-insecure)"
            )


def is_loopback(host: str) -> bool:
    """Whether `host` is an address of this machine only; any name but `localhost` may be elsewhere."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Reloaded(Generic[T]):
    """What `read` makes of files; read again when one of them changes. From any number of threads."""

    def __init__(self, files: Sequence[str], read: Callable[[], T]):
        self._files = files
        self._read = read
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._state = self._states()
        self._value = read()

    def get(self) -> T:
        """The newest value whose files were good."""
        if time.monotonic() - self._looked >= RELOAD_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._looked = time.monotonic()
                state = self._states()
                if state != self._state:
                    self._state = state
                    self._value = self._read()
                    log.info("read again: %s", ", ".join(self._files))
            except SettingsError as error:
                log.error("%s; what was read before stays in force", error)
            finally:
                self._lock.release()
        return self._value

    def _states(self) -> list[object]:
        states: list[object] = []
        for file in self._files:
            try:
                stat = Path(file).stat()
                states.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
            except OSError:
                states.append(None)
        return states


class Tokens:
    """The tokens of a file; only their SHA-256 digests stay in memory.

    Raises:
        SettingsError: the file cannot be read, holds no token, or one that can be guessed or not be sent.
    """

    def __init__(self, file: str):
        self._digests = _Reloaded(
            [file], lambda: [hashlib.sha256(token.encode()).digest() for token in read_tokens(file)]
        )

    def accept(self, headers: Sequence[str]) -> bool:
        """Whether `headers`, the values of `authorization`, are one valid bearer token.

        The time does not tell how much of a token was right, nor which it was: digests are compared, each with all.
        """
        scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        presented = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        found = False
        for digest in self._digests.get():
            found |= hmac.compare_digest(digest, presented)
        return found and scheme.lower() == "bearer"


def read_tokens(file: str) -> list[str]:
    """The tokens of a file, in order; SettingsError as `Tokens` says."""
    try:
        lines = Path(file).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        raise SettingsError(f"token file {file}: {file_reason(error)}") from None
    tokens = []
    for number, line in enumerate(lines, 1):
        token = line.partition("#")[0].strip()
        if token and (len(token) < MIN_TOKEN_CHARS or not _TOKEN.fullmatch(token)):
            # The line itself is not shown: it may be most of a secret.
            raise SettingsError(
                f"token file {file}, line {number}: a token is at least {MIN_TOKEN_CHARS} of A-Z a-z 0-9 . _ ~ + / -;"
                " make one with `openssl rand -hex 32`"
            )
        if token:
            tokens.append(token)
    if not tokens:
        raise SettingsError(f"token file {file} holds no token; make one with `openssl rand -hex 32`")
    return tokens


class TokenInterceptor(grpc.ServerInterceptor):
    """UNAUTHENTICATED for a call without a token; its message is not even parsed."""

    def __init__(self, tokens: Tokens):
        self._tokens = tokens

    def intercept_service(self, continuation: Callable[..., Any], details: grpc.HandlerCallDetails) -> Any:
        handler = continuation(details)
        if details.method.startswith(_OPEN_METHODS):
            return handler
        values = [value for key, value in details.invocation_metadata if key == "authorization"]
        if self._tokens.accept([value for value in values if isinstance(value, str)]):
            return handler
        kind = (handler.request_streaming, handler.response_streaming) if handler else (False, False)
        return _HANDLERS[kind](lambda _, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL))


class TokenMiddleware:
    """HTTP 401 for a request without a token, unless its path is one of `open_paths`; its body is not read."""

    def __init__(self, app: ASGIApp, tokens: Tokens, open_paths: Collection[str] = ()):
        self._app = app
        self._tokens = tokens
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        values = [value.decode("latin-1") for key, value in scope.get("headers", ()) if key == b"authorization"]
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._tokens.accept(values):
            await self._app(scope, receive, send)
            return
        # Closed, because the client may still be sending a body that nobody reads.
        headers = {"WWW-Authenticate": 'Bearer realm="bert-tfx"', "Connection": "close"}
        await JSONResponse({"error": _REFUSAL}, 401, headers)(scope, receive, send)


class _Pem(NamedTuple):
    certificate: bytes
    key: bytes
    client_ca: bytes | None


def add_port(server: grpc.Server, address: str, settings: SecuritySettings) -> int:
    """Opens the gRPC port, with TLS where there is a certificate, and returns its number.

    Raises:
        RuntimeError: the port is taken.
        SettingsError: a certificate, key or CA cannot be read, or they do not belong together.
    """
    if settings.certificate_file is None:
        return server.add_insecure_port(address)
    pems = _Reloaded(_tls_files(settings), lambda: _read_pem(settings))
    given = pems.get()

    def fetch() -> Any:
        # gRPC asks at every connection; None is "as before".
        nonlocal given
        before, given = given, pems.get()
        return None if given is before else _configuration(given)

    credentials = grpc.dynamic_ssl_server_credentials(_configuration(given), fetch, settings.client_ca_file is not None)
    return server.add_secure_port(address, credentials)


def rest_context(settings: SecuritySettings) -> ssl.SSLContext | None:
    """The REST port's TLS, which takes changed files up as `add_port` does; None without a certificate."""
    if settings.certificate_file is None:
        return None
    contexts = _Reloaded(_tls_files(settings), lambda: _context(settings))
    context = contexts.get()

    def newest(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = contexts.get()

    # OpenSSL calls it at every handshake, before it chooses a certificate.
    context.sni_callback = newest  # type: ignore[assignment]
    return context


def _tls_files(settings: SecuritySettings) -> list[str]:
    return [file for file in (settings.certificate_file, settings.key_file, settings.client_ca_file) if file]


def _read_pem(settings: SecuritySettings) -> _Pem:
    _context(settings)  # gRPC would say nothing of a key that is another certificate's: every handshake would fail
    read = [Path(file).read_bytes() for file in _tls_files(settings)]
    return _Pem(read[0], read[1], read[2] if len(read) == 3 else None)


def _configuration(pem: _Pem) -> Any:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.client_ca)


def _context(settings: SecuritySettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    assert settings.certificate_file is not None
    try:
        # Without the function, OpenSSL would ask for the pass phrase of an encrypted key at the terminal.
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: b"")
        if settings.client_ca_file is not None:
            context.load_verify_locations(settings.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        missing = [file for file in _tls_files(settings) if not Path(file).exists()]
        if missing:  # OpenSSL does not say which
            raise SettingsError(f"{missing[0]}: no such file, which TLS takes") from None
        files = ", ".join(_tls_files(settings))
        raise SettingsError(
            f"TLS files {files}: {error}; each must be PEM, and the key the certificate's, without a pass phrase"
        ) from None
    return context
