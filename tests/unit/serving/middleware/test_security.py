"""TLS, mutual TLS and tokens, on both ports. No model is needed: authorised requests are NOT_FOUND."""

import contextlib
import hmac
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from serving.client import Client, ClientError
from serving.errors import SettingsError
from serving.middleware import security
from serving.middleware.security import Tokens, check_security, is_loopback
from serving.middleware.settings import SecuritySettings
from serving.server import Server
from tests.support.serving.pem import OTHER_TOKEN, TOKEN, Files

STATUS = "/v1/models/bert"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "RELOAD_SECONDS", 0.0)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Files]]:
    """Server without a model that requires a client certificate and a token; for tests that change nothing."""
    files = Files(tmp_path_factory.mktemp("pem"))
    with Server(files.folder / "none", grpc_port=0, rest_port=0, security=files.settings()) as server:
        yield server, files


def refused(call: Callable[[], object]) -> grpc.StatusCode | None:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.code


def client_of(secured: tuple[Server, Files], certificate: str | None = "client", token: str | None = TOKEN) -> Client:
    server, files = secured
    pair = (files(f"{certificate}.pem"), files(f"{certificate}.key")) if certificate else (None, None)
    return Client(f"127.0.0.1:{server.grpc_port}", "bert", 120, files("ca.pem"), *pair, token)


def rest(server: Server, context: ssl.SSLContext, token: str | None = TOKEN, path: str = STATUS) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = f"https://127.0.0.1:{server.rest_port}{path}"
    return httpx.get(url, verify=context, headers=headers, trust_env=False, timeout=120)


def test_certificate_and_token_are_accepted(secured: tuple[Server, Files]) -> None:
    server, files = secured
    for token in (TOKEN, OTHER_TOKEN):
        with client_of(secured, token=token) as client:
            assert refused(client.status) is grpc.StatusCode.NOT_FOUND
        assert rest(server, files.context("client"), token).status_code == 404


@pytest.mark.parametrize("certificate", [None, "stranger"])
def test_without_a_certificate_of_the_ca_there_is_no_connection(
    secured: tuple[Server, Files], certificate: str | None
) -> None:
    server, files = secured
    with client_of(secured, certificate) as client:
        assert refused(client.status) is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(httpx.TransportError):
        rest(server, files.context(certificate))


def test_plain_connections_are_refused(secured: tuple[Server, Files]) -> None:
    server, _ = secured
    with Client(f"127.0.0.1:{server.grpc_port}", timeout=60, token=TOKEN) as client:
        assert refused(client.status) is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{server.rest_port}{STATUS}", trust_env=False, timeout=120)


@pytest.mark.parametrize("token", [None, TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"{TOKEN} {TOKEN}"])
def test_without_a_token_nothing_is_answered(secured: tuple[Server, Files], token: str | None) -> None:
    server, files = secured
    with client_of(secured, token=token) as client:
        for call in (client.status, client.metadata, lambda: client.predict({"text": ["a"]})):
            assert refused(call) is grpc.StatusCode.UNAUTHENTICATED
    for path in (STATUS, "/v1/models/bert:predict", "/monitoring/prometheus/metrics", "/v1/models", "/elsewhere"):
        answer = rest(server, files.context("client"), token, path)
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")
    assert rest(server, files.context("client"), TOKEN, "/monitoring/prometheus/metrics").status_code == 200


def test_health_needs_no_token_but_reflection_does(secured: tuple[Server, Files]) -> None:
    with client_of(secured, token=None) as client:
        health = health_pb2_grpc.HealthStub(client._channel)
        assert health.Check(health_pb2.HealthCheckRequest(service=""), timeout=60).status == 2  # NOT_SERVING
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        reflect = reflection_pb2_grpc.ServerReflectionStub(client._channel).ServerReflectionInfo
        with pytest.raises(grpc.RpcError) as caught:
            list(reflect(iter([listing]), timeout=60))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        metadata = [("authorization", f"Bearer {TOKEN}")]
        (answer,) = reflect(iter([listing]), timeout=60, metadata=metadata)
        assert answer.list_services_response.service


def test_a_refused_message_is_not_even_parsed(secured: tuple[Server, Files]) -> None:
    with client_of(secured, token=None) as client:
        call = client._channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff no proto", timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    "headers, accepted",
    [
        ([f"Bearer {TOKEN}"], True),
        ([f"bearer {TOKEN}"], True),
        ([f"Basic {TOKEN}"], False),
        ([TOKEN], False),
        (["Bearer"], False),
        (["Bearer é\ud800"], False),
        ([], False),
        ([f"Bearer {TOKEN}", "Bearer x"], False),
    ],
)
def test_headers(files: Files, headers: list[str], accepted: bool) -> None:
    assert Tokens(files("tokens")).accept(headers) is accepted


def test_a_token_is_compared_with_all_digests(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(files("tokens"))
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for headers in ([f"Bearer {OTHER_TOKEN}"], [f"Bearer {TOKEN}"], ["Bearer x"], []):
        compared.clear()
        tokens.accept(headers)
        assert len(compared) == 2
        # Digests: neither their length nor a common prefix reveals anything about the tokens.
        assert {len(digest) for pair in compared for digest in pair} == {32}


def test_the_token_file_is_read_again(files: Files, at_once: None, caplog: pytest.LogCaptureFixture) -> None:
    tokens = Tokens(files("tokens"))
    accepted = [f"Bearer {TOKEN}"]
    Path(files("tokens")).write_text("another-token-of-32-characters-x\n")
    assert not tokens.accept(accepted) and tokens.accept(["Bearer another-token-of-32-characters-x"])
    for broken in ("", "short\n", None):
        if broken is None:
            Path(files("tokens")).unlink()
        else:
            Path(files("tokens")).write_text(broken)
        assert tokens.accept(["Bearer another-token-of-32-characters-x"]) and not tokens.accept(["Bearer short"])
        assert "the previous content stays in force" in caplog.text and "short" not in caplog.text
        caplog.clear()
    Path(files("tokens")).write_text(TOKEN)
    assert tokens.accept(accepted)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "tokens: no such file"),
        ("", "holds no token; make one with `openssl rand -hex 32`"),
        ("# nothing\n", "holds no token"),
        ("\nfifteen-letters\n", "line 2: a token is at least 16 of"),
        ("a token with spaces\n", "line 1: a token"),
        ("pässwörter-sind-lang\n", "line 1: a token"),
    ],
)
def test_invalid_token_files_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "tokens").write_text(content)
    with pytest.raises(SettingsError) as caught:
        Tokens(str(tmp_path / "tokens"))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not content or content.strip("\n#") not in str(caught.value)


@pytest.mark.parametrize(
    "host, loopback",
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
    ],
)
def test_other_addresses_than_loopback_need_tls_or_the_flag(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    check_security(SecuritySettings("certificate", "key"), host)
    check_security(SecuritySettings(allow_insecure=True), host)
    if loopback:
        check_security(SecuritySettings(), host)
    else:
        with pytest.raises(SettingsError, match=r"^refused to listen on .* without TLS.*--allow-insecure"):
            check_security(SecuritySettings(), host)


@pytest.mark.parametrize(
    "settings, message",
    [
        (SecuritySettings(certificate_file="a"), "give both files"),
        (SecuritySettings(key_file="a"), "give both files"),
        (SecuritySettings(client_ca_file="a"), "require TLS"),
    ],
)
def test_incomplete_sets_of_files_are_refused(settings: SecuritySettings, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_security(settings, "127.0.0.1")


@pytest.mark.parametrize("wrong", ["missing", "no PEM", "another key"])
def test_invalid_certificates_are_reported_in_one_line(files: Files, wrong: str) -> None:
    if wrong == "missing":
        Path(files("server.pem")).unlink()
    elif wrong == "no PEM":
        Path(files("server.pem")).write_text("no PEM")
    else:
        Path(files("server.key")).write_bytes(Path(files("client.key")).read_bytes())
    message = r"server.pem: no such file" if wrong == "missing" else r"^TLS files .*server.pem, .*all must be PEM.*$"
    with pytest.raises(SettingsError, match=message):
        Server(files.folder / "none", grpc_port=0, rest_port=0, security=files.settings())


def presented(port: int, context: ssl.SSLContext) -> str:
    """Serial number of the certificate that a port presents."""
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        certificate = wrapped.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def test_new_certificates_apply_to_new_connections(files: Files, at_once: None) -> None:
    with Server(files.folder / "none", grpc_port=0, rest_port=0, security=files.settings(mutual=False)) as server:
        context = files.context(None)
        before = presented(server.rest_port, context)
        assert presented(server.grpc_port, context) == before
        files.issue("server", files.ca.issue_cert("127.0.0.1"))
        after = {presented(port, context) for port in (server.rest_port, server.grpc_port)}
        assert len(after) == 1 and before not in after
        # A certificate without its new key changes nothing.
        Path(files("server.pem")).write_bytes(Path(files("client.pem")).read_bytes())
        assert {presented(port, context) for port in (server.rest_port, server.grpc_port)} == after


def test_a_new_client_ca_applies_to_both_ports(files: Files, at_once: None) -> None:
    with Server(files.folder / "none", grpc_port=0, rest_port=0, security=files.settings()) as server:
        assert rest(server, files.context("client")).status_code == 404
        other = trustme.CA()
        files.issue("newcomer", other.issue_cert("someone@example.org"))
        with pytest.raises(httpx.TransportError):
            rest(server, files.context("newcomer"))
        other.cert_pem.write_to_path(files("new-ca.pem"))
        # The client still trusts the first CA, the server already the other one.
        pem = Path(files("ca.pem")).read_bytes()
        context = files.context("newcomer")
        Path(files("ca.pem")).write_bytes(Path(files("new-ca.pem")).read_bytes())
        assert rest(server, context).status_code == 404
        Path(files("first-ca.pem")).write_bytes(pem)
        pair = files("newcomer.pem"), files("newcomer.key")
        with Client(f"127.0.0.1:{server.grpc_port}", "bert", 120, files("first-ca.pem"), *pair, TOKEN) as client:
            assert refused(client.status) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_sessions_do_not_outlive_their_ca(files: Files, at_once: None, version: ssl.TLSVersion) -> None:
    context, clients = files.context("client"), Path(files("ca.pem")).read_bytes()
    context.minimum_version = context.maximum_version = version

    def asked(session: ssl.SSLSession | None) -> tuple[bytes, bool, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", server.rest_port), timeout=120) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as wrapped,
        ):
            wrapped.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return wrapped.recv(65536)[:12], bool(wrapped.session_reused), wrapped.session

    with Server(files.folder / "none", grpc_port=0, rest_port=0, security=files.settings()) as server:
        answer, resumed, session = asked(None)
        assert (answer, resumed) == (b"HTTP/1.1 200", False)
        assert asked(session)[:2] == (b"HTTP/1.1 200", True)
        trustme.CA().cert_pem.write_to_path(files("ca.pem"))
        with contextlib.suppress(OSError):  # an alert, or closed
            assert asked(session)[0] == b""
        Path(files("ca.pem")).write_bytes(clients)
        assert asked(session)[:2] == (b"HTTP/1.1 200", False)


def test_the_client_sends_no_unencrypted_token_to_other_machines(files: Files) -> None:
    for address in ("10.0.0.1:8500", "example.org:8500", "[2001:db8::1]:8500"):
        with pytest.raises(ClientError, match=r"refused to send the token"):
            Client(address, token=TOKEN)
        Client(address, token=TOKEN, ca_file=files("ca.pem")).close()
    Client("[::1]:8500", token=TOKEN).close()


def test_incomplete_client_certificates_are_refused(files: Files) -> None:
    for options in ({"certificate": "a"}, {"key": "a", "ca_file": "b"}, {"certificate": "a", "key": "b"}):
        with pytest.raises(ClientError, match="requires its key"):
            Client(**options)
    with pytest.raises(ClientError, match=r"nowhere.pem: no such file"):
        Client(ca_file=files("nowhere.pem"))


def test_the_client_reports_a_failed_handshake(secured: tuple[Server, Files], files: Files) -> None:
    server, _ = secured
    with (
        Client(f"127.0.0.1:{server.grpc_port}", timeout=60, ca_file=files("ca.pem")) as client,
        pytest.raises(ClientError, match=r"is `bert-tfx serve` running\? \(.*(SSL|handshake).*\)"),
    ):
        client.status()
