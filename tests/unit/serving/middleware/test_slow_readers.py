"""Clients that take their answers late: nothing is cut off, by a shutdown either; and never: nothing is held."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import serving.server
from serving.api import inference
from serving.middleware import grpc_calls
from serving.middleware.settings import LimitSettings, SecuritySettings
from serving.protos import PredictResponse
from serving.scheduling.admission import QueueSettings
from serving.server import Server
from tests.support.serving.http2 import DATA, END_STREAM, PREFACE, SETTINGS, WINDOW_UPDATE, frame, predict_headers
from tests.support.serving.running import predict_request, wait_for

PATIENCE = 300.0
# Far less than the answer's megabytes.
SMALL_BUFFER = 32 * 1024


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server waits less for what it closes, and looks more often at calls: these tests wait for both."""
    monkeypatch.setattr(serving.server, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(inference, "_LAST_SECONDS", 0.1)
    monkeypatch.setattr(grpc_calls, "LOOK_SECONDS", 0.1)


@contextlib.contextmanager
def started(pushed: Path, security: SecuritySettings | None = None, **limits: float) -> Iterator[Server]:
    queue = QueueSettings(drain_seconds=PATIENCE, rest_timeout_seconds=PATIENCE)
    server = Server(pushed, grpc_port=0, rest_port=0, limits=LimitSettings(**limits), queue=queue, security=security)
    server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
    with server:
        assert server.wait_until_available(120)
        yield server


def request_of(rows: int) -> bytes:
    """A request with 9 kB of answer a row."""
    body = b'{"signature_name": "echo", "inputs": [%s]}' % b",".join([b'"%s"' % (b"x" * 4000)] * rows)
    head = b"POST /v1/models/bert:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


def asking(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    connection.settimeout(PATIENCE)
    connection.connect(("127.0.0.1", port))
    return connection


def answer_of(connection: socket.socket) -> bytes:
    """The body of an HTTP answer, as long as its head says."""
    with connection.makefile("rb") as read:
        lines = list(iter(read.readline, b"\r\n"))
        assert lines[0].startswith(b"HTTP/1.1 200 ")
        size = next(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length"))
        body = read.read(size)
    assert len(body) == size
    return body


@pytest.mark.parametrize("tls", [False, True])
def test_a_late_reader_gets_all_and_a_shutdown_waits_for_it(pushed: Path, tmp_path: Path, tls: bool) -> None:
    ca, context, security = trustme.CA(), ssl.create_default_context(), None
    if tls:
        ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
        ca.configure_trust(context)
        security = SecuritySettings(*[str(tmp_path / "server.pem")] * 2)
    # Of some, only a little is left when the system's buffers are full.
    sizes = (12, 16, 20, 24, 28, 32, 512)
    with started(pushed, security, max_head_seconds=1.0) as server, contextlib.ExitStack() as opened:
        connections = []
        for rows in sizes:
            plain = opened.enter_context(asking(server.rest_port))
            connections.append(context.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain)
            opened.enter_context(connections[-1])
            connections[-1].sendall(request_of(rows))
        wait_for(lambda: server.inference._admission.inside)
        time.sleep(1.2)  # after the deadline of the next head
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        time.sleep(1.2)  # after those of the shutdown
        assert stopping.is_alive() and server.inference._admission.inside
        for rows, connection in zip(sizes, connections, strict=True):
            assert answer_of(connection).count(b"x" * 4000) == rows
        stopping.join(PATIENCE)
        assert not stopping.is_alive()


def test_an_answer_that_is_never_taken_is_given_up(pushed: Path) -> None:
    with started(pushed, max_receive_seconds=0.5) as server, asking(server.rest_port) as connection:
        connection.sendall(request_of(64))
        connection.recv(1, socket.MSG_PEEK)  # the answer has begun
        assert server.inference._admission.inside == 1
        wait_for(lambda: not server.inference._admission.inside)


def unread_call(port: int) -> socket.socket:
    """A Predict call whose client takes nothing of the answer: the window of its stream is 0."""
    message = predict_request("echo", text=["x" * 4000]).SerializeToString()
    no_window = frame(SETTINGS, 0, 0, bytes([0, 4, 0, 0, 0, 0]))
    data = frame(DATA, END_STREAM, 1, b"\0" + len(message).to_bytes(4, "big") + message)
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(PREFACE + no_window + predict_headers(1) + data)
    return connection


def test_a_shutdown_waits_for_a_late_reader_of_grpc(pushed: Path) -> None:
    with started(pushed) as server, unread_call(server.grpc_port) as call:
        wait_for(lambda: server.calls.sending)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        time.sleep(1.2)
        assert stopping.is_alive() and server.inference._admission.inside == 1
        call.sendall(frame(WINDOW_UPDATE, 0, 1, (60_000).to_bytes(4, "big")))
        message = b""
        with call.makefile("rb") as frames:
            while head := frames.read(9):
                payload = frames.read(int.from_bytes(head[:3], "big"))
                message += payload if head[3] == DATA else b""
        assert PredictResponse.FromString(message[5:]).outputs["text"].string_val == [b"x" * 4000]
        stopping.join(PATIENCE)
        assert not stopping.is_alive()


def test_an_answer_of_grpc_that_is_never_taken_is_given_up(pushed: Path) -> None:
    with started(pushed, max_receive_seconds=0.5) as server, unread_call(server.grpc_port):
        wait_for(lambda: server.calls.sending)
        wait_for(lambda: not server.calls.sending)
        wait_for(lambda: not server.inference._admission.inside)
