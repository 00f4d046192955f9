"""What requests cost, estimated before computation; how they are divided; and their end between two calls."""

import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from serving.client import Client, ClientError
from serving.errors import ServingError
from serving.middleware.settings import LimitSettings
from serving.models.servable import GraphServable as Servable
from serving.protos import Example, PredictionServiceStub, SignatureDef, types_pb2
from serving.scheduling.admission import RequestContext
from serving.scheduling.jobs import Call, Job
from serving.scheduling.row_load import answer_bytes, budget_of, check_load, load_of
from serving.server import Server
from tests.support.serving.running import predict_request, running, wait_for


def texts(*rows: Any) -> np.ndarray:
    array = np.array(rows, object)
    return np.vectorize(str.encode, otypes=[object])(array) if array.size else array


def example(**features: list[Any]) -> bytes:
    found = Example()
    for name, values in features.items():
        kind = "int64_list" if isinstance(values[0], int) else "bytes_list"
        getattr(found.features.feature[name], kind).value.extend(values)
    return found.SerializeToString()


def divided(inputs: dict[str, np.ndarray], most_rows: int = 32, divides: bool = True) -> list[list[int]]:
    """Rows of each call."""
    load, budget = load_of(inputs), budget_of(most_rows)
    check_load(load, budget, divides)
    job = Job(None, "", SignatureDef(), [], inputs, load, 0, budget, divides, False)  # type: ignore[arg-type]
    calls = []
    while (begin := job.taken) < len(job.units):
        Call(budget).take(job)
        calls.append(job.order[begin : job.taken].tolist() if job.order is not None else "whole")
    return calls


def test_load_of_rows() -> None:
    def column(name: str, **inputs: np.ndarray) -> list[int]:
        return [getattr(row, name) for row in load_of(inputs)]

    text = {"text": texts("a" * 10, "[MASK] [MASK]", "a" * 600), "text_pair": texts("bb", "", "b")}
    assert column("tokens", **text) == [16, 17, 512] and column("longest", **text) == [12, 13, 601]
    assert column("masks", **text) == [0, 2, 0] and column("texts", **text) == [1, 1, 1]
    assert column("masks", text=texts("<mask> of RoBERTa <mask>", "mask")) == [2, 0]
    (choices,) = load_of({"text": texts("aaaa"), "choices": texts(["b", "bb", "b"])})
    assert (choices.tokens, choices.texts, choices.bytes) == (30, 3, 18)
    # One pair for all rows.
    assert column("longest", text=texts("a", "aa"), text_pair=texts("bbb")) == [4, 5]
    rows = [example(masked_lm_positions=[1, 2], input_ids=[1] * 9), example(input_ids=[1] * 9), b""]
    assert column("masks", examples=np.array(rows, object)) == [2, 9, 0]
    assert column("texts", examples=np.array([example(choices=[b"a"] * 7)], object)) == [7]
    assert column("tokens", real=np.zeros([7, 2])) == [0] * 7


@pytest.mark.parametrize("bad", [b"abc", b"\xff\xfe", b"\x0a\x05abc"])
def test_malformed_examples_are_reported_by_row(bad: bytes) -> None:
    with pytest.raises(ServingError, match=r'input "examples", row 1: not a serialized tf\.Example') as caught:
        load_of({"examples": np.array([example(text=[b"a"]), bad], object)})
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_calls_have_similar_lengths_and_bounded_size() -> None:
    assert divided({"text": texts("a" * 900, "a", "aa")}) == ["whole"]
    assert divided({"text": texts("aa", "a" * 900, "a", "aaa")}, 3) == [[2, 0, 3], [1]]
    # One long text among 4,095 short ones is computed with others of its own length.
    widths = [len(rows) for rows in divided({"text": texts("a" * 1680, *["a"] * 4095)})]
    assert widths == [32] * 127 + [31, 1]
    # Word pieces, masks, bytes.
    choices = {"text": texts(*["a" * 600] * 4), "choices": texts(*[["b"] * 16] * 4)}
    assert divided(choices) == [[0, 1], [2, 3]]
    masks = {"text": texts("[MASK]" * 510, "[MASK]" * 256, "[MASK]" * 256, "[MASK]")}
    assert divided(masks) == [[3], [0], [1, 2]]
    large = {"text": texts("a" * 300_000, "a" * 200_000, "a" * 200_000)}
    assert divided(large) == [[0, 1], [2]]


def test_requests_above_the_limit_are_refused() -> None:
    row = {"text": texts("a" * 600), "choices": texts(["b"] * 33)}
    with pytest.raises(ServingError, match="row 0: 33 texts of up to 601 bytes; a row may have at most 16384 word"):
        divided(row)
    with pytest.raises(ServingError, match="row 0: 9 texts of up to 1000001 bytes"):
        divided({"text": texts("a" * 1_000_000), "choices": texts(["b"] * 9)})
    assert divided({"text": texts("a"), "choices": texts(["b"] * 1000)}) == ["whole"]
    whole = {"examples": np.array([example(text=[b"a" * 600])] * 33, object)}
    with pytest.raises(ServingError, match=r"33 rows of up to 512 word pieces .* send fewer or shorter rows") as caught:
        divided(whole, divides=False)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert divided({"examples": whole["examples"][:32]}, divides=False) == ["whole"]
    assert divided({"real": np.zeros([5000, 2])}, divides=False) == ["whole"]


def signature(**outputs: tuple[int, list[int]]) -> SignatureDef:
    found = SignatureDef()
    for name, (dtype, sizes) in outputs.items():
        found.outputs[name].dtype = dtype
        for size in sizes:
            found.outputs[name].tensor_shape.dim.add(size=size)
    return found


@pytest.mark.parametrize(
    "outputs, inputs, wanted, size",
    [
        # encode: [B, T, H]
        ({"tokens": (7, [-1, -1]), "vectors": (1, [-1, -1, 100])}, {"text": ["a" * 46] * 3}, ["vectors"], 3 * 50 * 400),
        ({"tokens": (7, [-1, -1]), "vectors": (1, [-1, -1, 100])}, {"text": ["a" * 900]}, ["vectors"], 512 * 400),
        ({"tokens": (7, [-1, -1]), "pooled": (1, [-1, 100])}, {"text": ["a"] * 2}, ["pooled"], 800),
        # fill_mask: [B, M, k]
        ({"tokens": (7, [-1, -1, 5])}, {"text": ["[MASK] [MASK] aaaaaaa", "[MASK]"]}, ["tokens"], 2 * 2 * 5 * 64),
        # tagging: [B, W]
        ({"words": (7, [-1, -1]), "starts": (9, [-1, -1])}, {"text": ["a b " * 300, "a"]}, ["starts"], 2 * 601 * 8),
        # multiple choice: [B, C]
        ({"scores": (1, [-1, -1])}, {"text": ["a"], "choices": [["b"] * 50]}, ["scores"], 200),
        ({"all": (1, [])}, {"text": ["a"]}, ["all"], 4),
    ],
)
def test_answer_bytes_follow_from_shapes(
    outputs: dict[str, Any], inputs: dict[str, Any], wanted: list[str], size: int
) -> None:
    load = load_of({name: texts(*rows) for name, rows in inputs.items()})
    assert answer_bytes(signature(**outputs), wanted, load) == size
    assert types_pb2.DT_STRING == 7


@pytest.fixture(scope="module")
def limited(pushed: Path) -> Iterator[Server]:
    with running(pushed, limits=LimitSettings(max_answer_bytes=40_000)) as server:
        yield server


def test_growth_is_that_of_the_types_asked_for(limited: Server) -> None:
    """Of 12 bytes a row; of 40,000, REST's JSON takes four times as many for one type, eight times for several."""
    body = {"model": "bert", "texts": ["a"] * 800, "input": ["a"] * 800}
    several = body | {"embedding_types": ["float", "int8"]}
    with httpx.Client(base_url=f"http://127.0.0.1:{limited.rest_port}", trust_env=False, timeout=120) as http:
        assert [http.post(path, json=body).status_code for path in ("/v1/embeddings", "/v2/embed")] == [200, 200]
        refused = http.post("/v2/embed", json=several), http.post("/v1/embeddings", json=body | {"input": ["a"] * 900})
    assert [(answer.status_code, answer.json()["error"]["type"]) for answer in refused] == [
        (413, "invalid_request_error")
    ] * 2


def test_too_large_answers_are_refused_before_execution(limited: Server) -> None:
    asked = {"text": ["word " * 10] * 20}  # of 54 word pieces at most
    with Client(f"127.0.0.1:{limited.grpc_port}") as client:
        with pytest.raises(ClientError, match="the answer may take 77920 bytes; at most 40000: send fewer") as caught:
            client.predict(asked, "sequence")
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.predict(asked, "sequence", ["pooled_output"])["pooled_output"].shape == (20, 2)
    url = f"http://127.0.0.1:{limited.rest_port}/v1/models/bert:predict"
    body = {"instances": ["word " * 10] * 3, "signature_name": "sequence"}
    with httpx.Client(trust_env=False, timeout=120) as http:
        answer = http.post(url, json=body)
        assert (answer.status_code, "may take 11688 bytes; at most 10000" in answer.text) == (413, True)
        assert http.post(url, json=body | {"instances": ["word " * 10]}).status_code == 200


def test_memory_of_a_body_is_reserved_while_it_arrives(limited: Server) -> None:
    """Of 1.28 MB for all: of half a body, and of a text, which is copied."""
    head = b"POST /v1/models/bert:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", limited.rest_port), timeout=60) as connection:
        connection.sendall(head)
        while not select.select([connection], [], [], 0.02)[0]:
            connection.sendall(b" " * 50_000)
        with connection.makefile("rb") as answered:
            answer = answered.read()
    assert answer.startswith(b"HTTP/1.1 429 ") and b"bytes; others leave" in answer
    with Client(f"127.0.0.1:{limited.grpc_port}") as client:
        with pytest.raises(ClientError, match="answer may take 1400016 bytes; at most 1280000"):
            client.predict({"text": ["a" * 350_000]}, "length")
        assert client.predict({"text": ["a" * 300_000]}, "length")["length"].tolist() == [300_000]


@pytest.mark.parametrize("over", ["gRPC", "REST"])
def test_requests_of_disconnected_clients_stop(server: Server, monkeypatch: pytest.MonkeyPatch, over: str) -> None:
    """1,024 rows are 32 calls; the client disconnects during the third."""
    compute, cancel, third, noticed = Servable.compute, RequestContext.cancel, threading.Event(), threading.Event()
    computed: list[int] = []

    def counted(self: Any, name: str, inputs: Any) -> Any:
        computed.append(len(inputs["text"]))
        if len(computed) >= 3:
            third.set()
            assert noticed.wait(60)
        return compute(self, name, inputs)

    def cancelled(self: RequestContext) -> None:
        cancel(self)
        if third.is_set():
            noticed.set()

    monkeypatch.setattr(Servable, "compute", counted)
    monkeypatch.setattr(RequestContext, "cancel", cancelled)
    with asking(server, over, ["a"] * 1024):
        assert third.wait(60)
    assert noticed.wait(60)
    wait_for(lambda: not (server.inference._admission.inside or server.inference._scheduler._working))
    threads = server.inference._scheduler._settings.num_batch_threads
    assert set(computed) == {32} and 3 <= len(computed) <= 2 + threads


@contextlib.contextmanager
def asking(server: Server, over: str, given: list[str]) -> Iterator[None]:
    """A client that waits for the lengths of texts, and goes away at the end."""
    if over == "gRPC":
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", [("grpc.enable_http_proxy", 0)]) as channel:
            answer = PredictionServiceStub(channel).Predict.future(predict_request("length", text=given))
            yield
            assert answer.cancel()
    else:
        body = json.dumps({"inputs": given, "signature_name": "length"}).encode()
        head = f"POST /v1/models/bert:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection:
            connection.sendall(head.encode() + body)
            yield
