"""What should not come and does: half a message, 1,000 idle connections, 100 MB, 10,000 texts.

The server is a process of its own, so that its threads, descriptors and memory are counted from outside. What malformed
messages, wrong signatures and dtypes, and names with `../` get is in test_fuzz.py, test_grpc_service.py,
test_rest_service.py and test_model_manager.py.
"""

import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from serving.client import Client, ClientError
from serving.limits import LimitSettings
from serving.request_queue import QueueSettings
from serving.server import Server

Push = Callable[[Path, int, int], Path]
PREDICT = "/tensorflow.serving.PredictionService/Predict"
ROWS, IDLE, RECEIVE_SECONDS = 10_000, 1_000, 2
# 8 requests, and gRPC's 16 spare threads.
GRPC_THREADS = 24
# Threads of gRPC's own, and their descriptors, which come and go with what there is to do.
OTHERS = 16
# Measured: 6 to 8 MB at most while 100 MB come in over both ports; less than 1 MB after rounds of 10,000 texts, once
# the first one has grown the heap (glibc gives nothing back of what lies below what is in use).
KEPT_MB = 32


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory, push: Push, in_process: Callable[..., Any]) -> Iterator[Any]:
    base = tmp_path_factory.mktemp("hostile")
    push(base, 1, 1)
    # Both ends of the idle connections; the process inherits it.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4 * IDLE), hard), hard))
    limits = LimitSettings(max_rows=ROWS, max_receive_seconds=RECEIVE_SECONDS)
    yield in_process(base, queue=QueueSettings(max_requests=GRPC_THREADS - 16), limits=limits)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def wait_for(done: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# ---------------------------------------------------------------------- half of it


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """RFC 9113, section 4.1."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def half_sent_calls(port: int, count: int) -> socket.socket:
    """A connection with `count` calls of Predict, whose last one has sent half of a frame of its message."""
    named = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": PREDICT.encode(),
        b":authority": b"localhost",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    # RFC 7541, section 6.2.2: literal fields with a new name, not indexed.
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in named.items())
    settings, streams = frame(4, 0, 0, b""), range(1, 2 * count, 2)
    headers = b"".join(frame(1, 4, stream, block) for stream in streams)
    half = frame(0, 0, streams[-1], bytes([0, 0, 0, 0, 100]) + bytes(100))[:60]
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + headers + half)
    return connection


HALF_A_BODY = b"POST /v1/models/bert:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


def half_sent_bodies(port: int, sent: bytes, count: int) -> list[socket.socket]:
    connections = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    for connection in connections:
        connection.sendall(sent)
    return connections


def received(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def ended_streams(connection: socket.socket) -> Iterator[int]:
    """The streams that the server ends, as it does: by RST_STREAM, or by a last frame of headers (RFC 9113)."""
    with connection.makefile("rb") as frames:
        while head := frames.read(9):
            frames.read(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == 3 or (kind == 1 and flags & 1):
                yield stream


def test_half_a_call_holds_no_thread_for_ever(process: Any) -> None:
    """As many as there are threads, over one connection: gRPC itself would answer nobody any more."""
    with half_sent_calls(process.grpc_port, GRPC_THREADS) as calls:
        ended: set[int] = set()
        for stream in ended_streams(calls):  # for at most 30 seconds
            ended.add(stream)
            if len(ended) == GRPC_THREADS:
                break
        assert ended == set(range(1, 2 * GRPC_THREADS, 2))
        process.ask()


def test_half_a_request_of_rest_holds_no_thread_and_is_refused_in_time(process: Any) -> None:
    threads = process.threads
    half_a_head = half_sent_bodies(process.rest_port, b"POST /v1/models/bert:predict HTTP/1.1\r\nContent-Le", 50)
    half_a_body = half_sent_bodies(process.rest_port, HALF_A_BODY, 50)
    process.ask()
    assert process.threads <= threads + OTHERS
    for connection in half_a_body:
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 408 ") and b"did not arrive in %d seconds" % RECEIVE_SECONDS in answer
    for connection in half_a_head + half_a_body:
        connection.close()


def test_what_is_half_sent_does_not_hold_a_stop_up(tmp_path: Path) -> None:
    others = set(threading.enumerate())  # other servers of the session have one, too
    server = Server(tmp_path, grpc_port=0, rest_port=0)
    server.start()
    with half_sent_calls(server.grpc_port, 2) as calls:
        (body,) = half_sent_bodies(server.rest_port, HALF_A_BODY, 1)
        wait_for(lambda: server.guard._arrivals.waiting == 2)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 10
        # gRPC says why; the body gets an error, or nothing.
        assert received(calls) and b" 200 " not in received(body)
        body.close()
    wait_for(lambda: "arrivals" not in {thread.name for thread in set(threading.enumerate()) - others})


# ---------------------------------------------------------------------- too much of it


def test_a_thousand_idle_connections(process: Any) -> None:
    wait_for(lambda: process.descriptors < IDLE)
    process.ask()
    threads, descriptors = process.threads, process.descriptors
    idle = [
        socket.create_connection(("127.0.0.1", port), timeout=30)
        for port in (process.grpc_port, process.rest_port)
        for _ in range(IDLE)
    ]
    # Those of the requests before may have been counted, and be gone by now.
    wait_for(lambda: process.descriptors >= descriptors + 2 * IDLE - OTHERS)
    process.ask()
    assert process.threads < threads + IDLE // 10  # none a connection
    for connection in idle:
        connection.close()
    wait_for(lambda: process.descriptors <= descriptors + OTHERS)
    process.ask()
    wait_for(lambda: process.threads <= threads + OTHERS)


def test_a_message_of_100_mb_is_refused_and_never_held(process: Any) -> None:
    process.ask()
    process.forget_peak()
    before = process.memory_mb()
    message = b"x" * 100_000_000
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1)]
    with (
        grpc.insecure_channel(f"127.0.0.1:{process.grpc_port}", options) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        channel.unary_unary(PREDICT)(message, timeout=60)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert process.post(message).status_code == 413
    process.ask()
    assert process.memory_mb("VmHWM") - before < KEPT_MB


def test_ten_thousand_texts_are_answered_where_they_may_be(process: Any, server: Server) -> None:
    texts = ["x" * (number % 300) for number in range(ROWS)]
    lengths = [len(text) for text in texts]
    body = json.dumps({"inputs": texts, "signature_name": "length"}).encode()

    def answered() -> None:
        with Client(f"127.0.0.1:{process.grpc_port}") as client:
            assert client.predict({"text": texts}, "length")["length"].tolist() == lengths
        assert process.post(body).json() == {"outputs": lengths}

    answered()
    before = process.memory_mb()
    for _ in range(4):
        answered()
    assert process.memory_mb() - before < KEPT_MB
    for port, given in ((process.grpc_port, [*texts, ""]), (server.grpc_port, texts)):
        with Client(f"127.0.0.1:{port}") as client, pytest.raises(ClientError, match="rows; a request may have") as no:
            client.predict({"text": given}, "length")
        assert no.value.code is grpc.StatusCode.INVALID_ARGUMENT
