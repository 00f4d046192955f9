"""Idle connections are closed in time and do not delay other clients."""

import contextlib
import itertools
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.client import Client
from serving.errors import SettingsError
from serving.middleware.connections import reserve_descriptors
from serving.middleware.settings import LimitSettings
from serving.server import Server

HALF_OPEN, HEAD_SECONDS, MOST_OF_ONE, MOST = 800, 1.5, 200, 250
HALF_A_HEAD = b"POST /v1/models/bert:predict HTTP/1.1\r\nContent-Le"
HALF_A_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
# On Linux all of 127.0.0.0/8 is loopback: an address other than that of the test's clients.
ELSEWHERE = "127.0.0.2"


@pytest.fixture(scope="module", autouse=True)
def both_ends() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * HALF_OPEN + 1000:
        pytest.fail(f"the test takes {2 * HALF_OPEN + 1000} descriptors, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * HALF_OPEN + 1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def process(pushed: Path, in_process: Callable[..., Any], both_ends: None) -> Any:
    limits = LimitSettings(
        max_head_seconds=HEAD_SECONDS, max_connections=MOST, max_address_connections=MOST_OF_ONE, max_idle_seconds=0.4
    )
    return in_process(pushed, limits=limits)


def half_open(port: int, sent: bytes) -> list[socket.socket]:
    connections = []
    for _ in range(HALF_OPEN):
        connection = socket.create_connection(("127.0.0.1", port), timeout=120, source_address=(ELSEWHERE, 0))
        connections.append(connection)
        try:
            connection.sendall(sent)
        except OSError:  # closed at once
            continue
    return connections


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(("port", "sent"), [("rest_port", HALF_A_HEAD), ("grpc_port", HALF_A_PREFACE)])
def test_800_half_open_connections_are_closed_without_delaying_others(process: Any, port: str, sent: bytes) -> None:
    before, threads, began = process.descriptors, process.threads, time.monotonic()
    connections = half_open(getattr(process, port), sent)
    if port == "rest_port":  # gRPC's are closed at the next check
        assert process.descriptors - before <= MOST + 50
    assert process.threads < threads + 100  # no thread per connection
    longest = 0.0
    while not all(map(is_closed, connections)):
        assert time.monotonic() - began < 240, f"{sum(not is_closed(one) for one in connections)} are open"
        asked = time.monotonic()
        process.ask()  # over both ports, by new clients
        longest = max(longest, time.monotonic() - asked)
    assert longest < 30
    for connection in connections:
        connection.close()
    process.ask()


def test_a_slow_request_head_times_out(process: Any) -> None:
    """Neither at first nor after an answer, where uvicorn has no timeout once a byte has arrived."""
    head = b"GET /v1/models/bert HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", process.rest_port), timeout=120) as connection:
        began = time.monotonic()
        connection.sendall(head + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        for letter in itertools.cycle(head):
            try:
                connection.sendall(bytes([letter]))
                time.sleep(0.05)
            except OSError:
                break
            assert time.monotonic() - began < 240, "waited in vain"
        assert is_closed(connection) and time.monotonic() - began > HEAD_SECONDS - 0.5


@pytest.mark.parametrize(
    "begin", [b"A: ", b"Transfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\nA: "], ids=["head", "trailer"]
)
def test_an_endless_head_is_refused_after_64_kilobytes(process: Any, begin: bytes) -> None:
    sent, began = 0, time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", process.rest_port), timeout=120) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(b"POST /v1/models/bert:predict HTTP/1.1\r\nHost: localhost\r\n" + begin)
        while not is_closed(connection):
            connection.sendall(b"a" * 10_000)
            sent += 10_000
            time.sleep(0.02)
            assert sent < 2_000_000, "neither refused nor closed"
    assert time.monotonic() - began < HEAD_SECONDS, "closed for its age"


def test_an_idle_client_is_answered(process: Any) -> None:
    with Client(f"127.0.0.1:{process.grpc_port}", timeout=120) as client:
        for seconds in (0, 0.8):
            time.sleep(seconds)
            assert client.predict({"text": ["abc"]}, "length")["length"].tolist() == [3]


def test_the_descriptor_limit_is_checked_before_the_start(tmp_path: Path, monkeypatch: Any) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    for allowed, want in (((1024, 4096), [(3512, 4096)]), ((4096, 4096), [])):
        monkeypatch.setattr(resource, "getrlimit", lambda _, allowed=allowed: allowed)
        raised.clear()
        reserve_descriptors(LimitSettings())
        assert raised == want
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(SettingsError, match=r"need 3512 descriptors; the limit is 1024: .* --max-connections 85$"):
        Server(tmp_path, grpc_port=0, rest_port=0)
