"""Limits for the size of requests, over both ports."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from serving import tensors
from serving.api import json_tensors
from serving.api.classify import serialized_examples
from serving.client import Client, ClientError
from serving.errors import ServingError
from serving.middleware.limits import check, check_tensors
from serving.middleware.settings import LimitSettings
from serving.protos import Input, TensorProto, types_pb2
from tests.support.serving.running import running

LIMITS = LimitSettings(max_request_bytes=2000, max_rows=3, max_text_bytes=10)


def texts(*shape: int, text: bytes = b"a") -> np.ndarray:
    return np.full(shape, text, object)


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({"text": texts(3), "number": np.array(7)}, None),
        ({"text": texts(3, 9), "real": np.zeros([3, 100])}, None),
        ({"text": texts(2), "real": np.zeros([4, 1])}, 'input "real" has 4 rows; a request may have at most 3'),
        ({"text": texts(4)}, 'input "text" has 4 rows; a request may have at most 3: send several'),
        ({"text": texts(2, text=b"x" * 10)}, None),
        ({"text": texts(2, text=b"x" * 11)}, 'input "text", row 0: 11 bytes; a text may have at most 10'),
        ({"text": np.array([b"", b"x" * 12, b"x" * 11], object)}, 'input "text", row 1: 12 bytes'),
        ({"choices": np.array([[b"", b""], [b"", b"x" * 11]], object)}, 'input "choices", row 1: 11 bytes'),
        ({"text": np.array(b"x" * 11, object)}, 'input "text", row 0: 11 bytes'),
        ({"text": texts(0), "wide": texts(3, 0)}, None),
    ],
)
def test_check(inputs: dict[str, np.ndarray], message: str | None) -> None:
    if message is None:
        check(inputs, LIMITS)
        check_tensors({name: tensors.to_proto(array) for name, array in inputs.items()}, LIMITS)
        return
    with pytest.raises(ServingError) as caught:
        check(inputs, LIMITS)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT and str(caught.value).startswith(message)


def claiming(*shape: int, dtype: int = types_pb2.DT_STRING) -> TensorProto:
    dims = [{"size": size} for size in shape]
    return TensorProto(dtype=dtype, tensor_shape={"dim": dims})


def test_claimed_shapes_are_refused_before_expansion() -> None:
    """Each input alone is below the limit of `tensors.to_array`; together they would be 8 GB of pointers."""
    request = {f"input {number}": claiming(3, tensors.MAX_ELEMENTS // 3) for number in range(128)}
    with pytest.raises(ServingError, match=r"the inputs have 2147483136 bytes once .* may have at most 2000:"):
        check_tensors(request, LIMITS)
    with pytest.raises(ServingError, match='input "text" has 8000000 rows'):
        check_tensors({"text": claiming(8_000_000)}, LIMITS)
    check_tensors({"text": claiming(-1, -5)}, LIMITS)  # reported by to_array


@pytest.mark.parametrize(
    "shape, given, written",
    [
        # Of numbers, which have no values here, as many bytes as elements.
        ([2, 1000], None, None),
        ([2, 1001], None, 2002),
        ([3], [b"x" * 10], None),
        ([3, 100], [b"x" * 10], 3600),
        ([3, 100], [b"x" * 10] * 299 + [b""], 3590),
        ([1, 8_000_000], [b""], 16_000_000),
        ([0, 8_000_000], [], 16_000_000),
        ([3, 333], [], None),
    ],
)
def test_claimed_values_count_once_per_element(shape: list[int], given: Any, written: int | None) -> None:
    proto = claiming(*shape, dtype=types_pb2.DT_FLOAT if given is None else types_pb2.DT_STRING)
    proto.string_val.extend(given or [])
    if written is None:
        check_tensors({"text": proto}, LIMITS)
        return
    with pytest.raises(ServingError, match=f"the inputs have {written} bytes once") as caught:
        check_tensors({"text": proto}, LIMITS)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("context, examples, fits", [(600, 3, True), (700, 3, False), (0, 100, True)])
def test_a_context_counts_once_per_example(context: int, examples: int, fits: bool) -> None:
    given = Input()
    given.example_list_with_context.context.features.feature["text"].bytes_list.value.append(b"x" * context)
    for _ in range(examples):
        given.example_list_with_context.examples.add()
    limits = dataclasses.replace(LIMITS, max_rows=100)
    if fits:
        assert len(serialized_examples(given, limits)) == examples
        return
    with pytest.raises(ServingError, match="bytes once repeated values and contexts are expanded"):
        serialized_examples(given, limits)
    given.example_list_with_context.examples.add()
    with pytest.raises(ServingError, match='input "inputs" has 4 rows; a request may have at most 3'):
        serialized_examples(given, LIMITS)


@pytest.fixture(scope="module")
def limited(pushed: Path) -> Iterator[tuple[Client, httpx.Client]]:
    with running(pushed, limits=LIMITS) as server:
        url = f"http://127.0.0.1:{server.rest_port}"
        with (
            Client(f"127.0.0.1:{server.grpc_port}") as client,
            httpx.Client(base_url=url, trust_env=False, timeout=120) as http,
        ):
            yield client, http


@pytest.mark.parametrize(
    "given, message",
    [
        (["a"] * 4, 'input "text" has 4 rows; a request may have at most 3: send several'),
        (["a", "é" * 6], 'input "text", row 1: 12 bytes; a text may have at most 10'),
        (["a", "b"], None),
    ],
)
def test_both_ports_have_the_same_limits(
    limited: tuple[Client, httpx.Client], given: list[str], message: str | None
) -> None:
    client, http = limited
    body = {"instances": given, "signature_name": "length"}
    if message is None:
        assert client.predict({"text": given}, "length")["length"].tolist() == [1, 1]
        assert http.post("/v1/models/bert:predict", json=body).json() == {"predictions": [1, 1]}
        return
    with pytest.raises(ClientError) as caught:
        client.predict({"text": given}, "length")
    assert (caught.value.code, str(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, message)
    answer = http.post("/v1/models/bert:predict", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": message})


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/models/bert:predict", {"instances": ["a"] * 4}, 'input "text" has 4 rows'),
        ("/models/bert:predict", {"instances": [{"text": "a"}] * 4}, 'input "text" has 4 rows'),
        ("/models/bert:predict", {"inputs": ["a"] * 4}, 'input "text" has 4 rows'),
        ("/models/bert:predict", {"inputs": {"text": ["a"] * 4}}, 'input "text" has 4 rows'),
        ("/models/bert:predict", {"inputs": [["a"] * 400]}, "expecting text: DT_STRING[?]; given: DT_STRING[1, 400]"),
        ("/models/bert:classify", {"examples": [{"text": "a"}] * 4}, 'input "examples" has 4 rows'),
        ("/models/bert:regress", {"examples": [{"text": "a"}] * 4}, 'input "examples" has 4 rows'),
        ("/embeddings", {"model": "bert", "input": ["a"] * 4}, 'input "text" has 4 rows'),
    ],
)
def test_sizes_are_checked_before_values_are_converted(
    limited: tuple[Client, httpx.Client], path: str, body: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(*_: Any) -> None:
        raise AssertionError("converted")

    for module, name in ((json_tensors, "_leaf"), (json_tensors, "_columns"), (json_tensors, "_example")):
        monkeypatch.setattr(module, name, convert)
    answer = limited[1].post(f"/v1{path}", json=body)
    assert answer.status_code == 400 and message in answer.text.replace("\\", "")


def test_a_message_above_the_limit(limited: tuple[Client, httpx.Client]) -> None:
    client, http = limited
    with pytest.raises(ClientError) as caught:
        client.predict({"text": ["a" * 2000]}, "length")
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    answer = http.post("/v1/models/bert:predict", json={"instances": ["a" * 2000]})
    assert answer.status_code == 413 and "2000 bytes" in answer.json()["error"]


@pytest.mark.parametrize(
    "name", ["max_request_bytes", "max_rows", "max_text_bytes", "max_answer_bytes", "max_receive_seconds"]
)
@pytest.mark.parametrize("value", [0, -1])
def test_limits_below_one_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be"):
        LimitSettings(**{name: value})
