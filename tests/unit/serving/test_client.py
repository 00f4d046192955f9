"""The client and its error messages."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from serving.client import Client, ClientError
from serving.models.servable import GraphServable as Servable
from serving.server import Server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(f"127.0.0.1:{server.grpc_port}") as client:
        yield client


def test_fill_mask_omits_padding(client: Client) -> None:
    answer = client.fill_mask(["[MASK] and [MASK]", "[MASK]"])
    assert [[[token for token, _ in mask] for mask in text] for text in answer] == [
        [["0a", "0b"], ["1a", "1b"]],
        [["0a", "0b"]],
    ]
    assert answer[1][0] == [("0a", pytest.approx(0.2)), ("0b", pytest.approx(0.1))]


def test_the_other_signatures(client: Client) -> None:
    np.testing.assert_allclose(client.embed(["abc", ""]), [[1.5, 0.3], [0, 0]], rtol=1e-6)
    assert client.encode(["abc", ""])["pooled_output"].tolist() == [[3] * 3, [0] * 3]
    assert client.predict({"text": ["abc"], "text_pair": ["de"]}, "encode_pair")["pooled_output"].tolist() == [[5] * 3]
    answer = client.predict({"text": ["a", "cc"], "text_pair": ["bb", "d"]}, "next_sentence")
    assert answer["is_next"].tolist() == [1.0, 0.0]
    answer = client.predict({"real": [[1.0, 2.0]], "whole": np.array([1], np.int32)}, "numbers", outputs=["whole"])
    assert {name: array.tolist() for name, array in answer.items()} == {"whole": [2]}


def test_strings_are_sent_unchanged(client: Client) -> None:
    # A command line that is not UTF-8, as Python decodes it; and text with a NUL at its end.
    typed = b"caf\xe9 [MASK]".decode(errors="surrogateescape")
    answer = client.predict({"text": [typed, "naïve\0", b"\xff"]}, "echo")
    assert answer["text"].tolist() == [b"caf\xe9 [MASK]", "naïve\0".encode(), b"\xff"]
    assert client.predict({"text": np.array(["ab", "c"])}, "length")["length"].tolist() == [2, 1]


def test_status_and_metadata(client: Client) -> None:
    assert [(status.version, status.state) for status in client.status()] == [(1, "AVAILABLE")]
    signatures = client.metadata()
    assert "fill_mask" in signatures and not any(name.startswith("__") for name in signatures)
    assert set(signatures["encode"].inputs) == {"text", "text_pair"}


def test_errors_are_one_line(client: Client) -> None:
    for call, code, message in [
        (lambda: client.fill_mask(["nothing"]), grpc.StatusCode.INVALID_ARGUMENT, "no [MASK] in text 0"),
        (lambda: client.predict({"text": [["a"], ["b", "c"]]}), None, "rows differ in length"),
        (lambda: client.predict({"text": ["a", 1]}), None, "strings and int are mixed"),
        (lambda: client.predict({"text": ["\ud800"]}), None, "surrogates not allowed"),
        (lambda: client.predict({"text": np.array([1j])}), None, "dtype complex128 is not supported"),
    ]:
        with pytest.raises(ClientError) as raised:
            call()
        assert raised.value.code is code and message in str(raised.value) and "\n" not in str(raised.value)


def test_missing_and_slow_servers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ClientError) as raised:
        client.status()
    assert str(raised.value) == "no server reachable at 127.0.0.1:1: is `bert-tfx serve` running?"
    # A proxy in the environment is not used.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Client(f"127.0.0.1:{server.grpc_port}") as client:
        client.status()
    told, compute = threading.Event(), Servable.compute

    def late(*given: Any) -> dict[str, np.ndarray]:
        assert told.wait(120)
        return compute(*given)

    monkeypatch.setattr(Servable, "compute", late)
    with (
        Client(f"127.0.0.1:{server.grpc_port}", timeout=0.2) as client,
        pytest.raises(ClientError, match=r"did not answer within 0\.2 seconds"),
    ):
        client.predict({"text": ["abc"]}, "length")
    told.set()


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ("Servable not found for request: Latest(bert); bert is still loading: ask again", "still loading"),
        ("the server is stopping: ask another one", "is stopping"),
        ("failed to connect to all addresses", "no server reachable at"),
        (None, "no server reachable at"),
    ],
)
def test_the_client_keeps_the_message_of_an_unavailable_server(details: str | None, message: str) -> None:
    class Refused(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNAVAILABLE

        def details(self) -> str | None:
            return details

    def refuse(*_: Any, **__: Any) -> None:
        raise Refused

    with Client("127.0.0.1:1") as client, pytest.raises(ClientError, match=message):
        client._call(refuse, None)
