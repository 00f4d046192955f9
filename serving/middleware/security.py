"""TLS, mutual TLS and bearer tokens.

Protection of each port:

| | TLS, client certificate | token |
|---|---|---|
| gRPC: every method of every service, server reflection too | yes | yes |
| gRPC: `grpc.health.v1` | yes | no: probes carry none, and learn only that the server is up |
| gRPC: HandleReloadConfigRequest | yes | an administrator's only; without such tokens it is disabled |
| REST: every other path, including `/monitoring/prometheus/metrics` | yes | yes: it lists the models |
| REST: the files of the page at `/` (`serving.page.routes`) | yes | no: they are public and ask for a token to send |

Kubernetes' gRPC probe has no TLS: with TLS, probe with `grpc_health_probe -tls` inside the container.

Files are re-read when they change, checked at most once in RELOAD_SECONDS: new certificates, CAs and tokens apply from
the next connection or request on. If a file becomes invalid, an error is logged and the previous content stays in
force; so revoke a token with a file that lacks it, not with an empty file.
"""

import contextlib
import hashlib
import hmac
import ipaddress
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc

from serving.errors import SettingsError, file_reason
from serving.middleware.settings import SecuritySettings

log = logging.getLogger(__name__)

RELOAD_SECONDS = 1.0
# Shorter tokens could be guessed.
MIN_TOKEN_CHARS = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
REFUSAL = "no valid bearer token: send `authorization: Bearer TOKEN`"
T = TypeVar("T")


def check_security(settings: SecuritySettings, host: str) -> None:
    """SettingsError if `host` requires TLS, or if a file of a set is missing."""
    if (settings.certificate_file is None) != (settings.key_file is None):
        raise SettingsError("TLS needs a certificate and its key: give both files, or neither")
    if settings.client_ca_file is not None and settings.certificate_file is None:
        raise SettingsError("client certificates require TLS: also give the server's certificate and key")
    if settings.admin_base_paths and settings.admin_token_file is None:
        raise SettingsError("--admin-base-path requires --admin-token-file")
    files = [file for file in (settings.token_file, settings.admin_token_file) if file]
    if len(files) == 2 and set.intersection(*(set(read_tokens(file)) for file in files)):
        raise SettingsError(f"{files[1]} and {files[0]} share a token: use different tokens")
    if settings.certificate_file is None and not settings.allow_insecure and not is_loopback(host):
        raise SettingsError(
            f"refused to listen on {host} without TLS: texts and tokens would be sent unencrypted;"
            " give a certificate and its key, or allow it explicitly (--allow-insecure)"
        )


def is_loopback(host: str) -> bool:
    """Return whether `host` is an address of this machine only; of names, only `localhost` is."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Reloaded(Generic[T]):
    """The result of `read`, renewed when one of the files changes. Thread-safe."""

    def __init__(self, files: Sequence[str], read: Callable[[], T]):
        self._files, self._read, self._lock = files, read, threading.Lock()
        self._looked, self._state, self._value = time.monotonic(), self._states(), read()

    def get(self) -> T:
        if time.monotonic() - self._looked >= RELOAD_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._looked = time.monotonic()
                state = self._states()
                if state != self._state:
                    self._state = state
                    self._value = self._read()
                    log.info("read again: %s", ", ".join(self._files))
            except SettingsError as error:
                log.error("%s; the previous content stays in force", error)
            finally:
                self._lock.release()
        return self._value

    def _states(self) -> list[object]:
        states: list[object] = []
        for file in self._files:
            with contextlib.suppress(OSError):
                stat = Path(file).stat()
                states.append((file, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return states


class Tokens:
    """Tokens of a file; only their SHA-256 digests are kept in memory. SettingsError as in `read_tokens`."""

    def __init__(self, file: str):
        self._digests = _Reloaded(
            [file], lambda: [hashlib.sha256(token.encode()).digest() for token in read_tokens(file)]
        )

    def accept(self, headers: Sequence[str]) -> bool:
        """Return whether `headers`, the values of `authorization`, are exactly one valid bearer token.

        Constant time: the digest is compared with all valid ones, so timing does not leak tokens.
        """
        scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        presented = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        valid = False
        for digest in self._digests.get():
            valid |= hmac.compare_digest(digest, presented)
        return valid and scheme.lower() == "bearer"


def read_tokens(file: str) -> list[str]:
    """Tokens of a file, in order; SettingsError: it cannot be read, or has none, or one too short or not to be sent."""
    try:
        lines = Path(file).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        raise SettingsError(f"token file {file}: {file_reason(error)}") from None
    tokens = []
    for number, line in enumerate(lines, 1):
        token = line.partition("#")[0].strip()
        if token and (len(token) < MIN_TOKEN_CHARS or not _TOKEN.fullmatch(token)):
            # The line is not quoted: it may be most of a secret.
            raise SettingsError(
                f"token file {file}, line {number}: a token is at least {MIN_TOKEN_CHARS} of A-Z a-z 0-9 . _ ~ + / -;"
                " make one with `openssl rand -hex 32`"
            )
        if token:
            tokens.append(token)
    if not tokens:
        raise SettingsError(f"token file {file} holds no token; make one with `openssl rand -hex 32`")
    return tokens


def authorization(metadata: Iterable[tuple[str, str | bytes]]) -> list[str]:
    """Values of `authorization` in the metadata of a gRPC call."""
    return [value for key, value in metadata if key == "authorization" and isinstance(value, str)]


def add_port(server: grpc.Server, address: str, settings: SecuritySettings) -> int:
    """Open the gRPC port, with TLS if there is a certificate, and return its number; RuntimeError if it is taken."""
    if settings.certificate_file is None:
        return server.add_insecure_port(address)
    newest = _Reloaded(_tls_files(settings), lambda: _configuration(settings))
    used = newest.get()

    def fetch() -> Any:
        # gRPC calls this for every connection; None means "unchanged".
        nonlocal used
        before, used = used, newest.get()
        return None if used is before else used

    credentials = grpc.dynamic_ssl_server_credentials(used, fetch, settings.client_ca_file is not None)
    return server.add_secure_port(address, credentials)


def rest_context(settings: SecuritySettings) -> ssl.SSLContext | None:
    """TLS context of the REST port, which reloads changed files as `add_port` does; None without a certificate."""
    if settings.certificate_file is None:
        return None
    newest = _NewestContext(ssl.PROTOCOL_TLS_SERVER)
    newest.contexts = _Reloaded(_tls_files(settings), lambda: _context(settings))
    return newest


class _NewestContext(ssl.SSLContext):
    """Starts each connection with the context of the newest files, and so drops resumable sessions of an old CA."""

    contexts: "_Reloaded[ssl.SSLContext]"

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.contexts.get().wrap_bio(*args, **options)


def _tls_files(settings: SecuritySettings) -> list[str]:
    return [file for file in (settings.certificate_file, settings.key_file, settings.client_ca_file) if file]


def _configuration(settings: SecuritySettings) -> Any:
    _context(settings)  # gRPC does not report a key of another certificate: every handshake would fail
    certificate, key, *client_ca = (Path(file).read_bytes() for file in _tls_files(settings))
    return grpc.ssl_server_certificate_configuration([(key, certificate)], *client_ca)


def _context(settings: SecuritySettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    assert settings.certificate_file is not None
    try:
        # Without the function, OpenSSL would prompt for the pass phrase of an encrypted key.
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: b"")
        if settings.client_ca_file is not None:
            context.load_verify_locations(settings.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        missing = [file for file in _tls_files(settings) if not Path(file).exists()]
        if missing:  # OpenSSL's error does not name it
            raise SettingsError(f"{missing[0]}: no such file (needed for TLS)") from None
        files = ", ".join(_tls_files(settings))
        raise SettingsError(
            f"TLS files {files}: {error}; all must be PEM, and the key must match and have no pass phrase"
        ) from None
    return context
