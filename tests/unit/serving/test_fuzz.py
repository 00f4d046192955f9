"""Malformed protos and JSON: an error with a code that says whose it is, never INTERNAL; the server lives."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.client import Client
from serving.protos import (
    ClassificationRequest,
    GetModelMetadataRequest,
    GetModelStatusRequest,
    ModelSpec,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
    types_pb2,
)
from serving.server import Server

PREDICTION, MODEL = "/tensorflow.serving.PredictionService/", "/tensorflow.serving.ModelService/"
METHODS: dict[str, Any] = {
    f"{PREDICTION}Predict": PredictRequest,
    f"{PREDICTION}Classify": ClassificationRequest,
    f"{PREDICTION}Regress": RegressionRequest,
    f"{PREDICTION}MultiInference": MultiInferenceRequest,
    f"{PREDICTION}GetModelMetadata": GetModelMetadataRequest,
    f"{MODEL}GetModelStatus": GetModelStatusRequest,
    "/grpc.health.v1.Health/Check": None,
}
# What only the server can be blamed for.
NEVER = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED}
NAMES = st.sampled_from(["bert", "", "../bert", "length", "numbers", "spin", "text", "serving_default", "é" * 300])
# Not `spin`'s turns, which take as long as they say.
SIGNATURES = st.sampled_from(["", "length", "numbers", "echo", "encode", "none", "é" * 2000])
SIZES = st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**62, -(2**63), 5000])
NUMBERS = st.integers(-(2**31), 2**31 - 1)


@st.composite
def predict_requests(draw: Callable[..., Any]) -> bytes:
    """Well-formed messages that say something odd."""
    request: Any = PredictRequest(model_spec=ModelSpec(name=draw(NAMES), signature_name=draw(SIGNATURES)))
    if draw(st.booleans()):
        request.model_spec.name = "bert"
    for name in draw(st.lists(st.sampled_from(["text", "real", "whole", "", "é"]), max_size=3, unique=True)):
        tensor = request.inputs[name]
        tensor.dtype = draw(st.sampled_from([*types_pb2.DataType.values(), 999, -1]))
        tensor.tensor_shape.unknown_rank = draw(st.booleans()) and draw(st.booleans())
        for size in draw(st.lists(SIZES, max_size=3)):
            tensor.tensor_shape.dim.add(size=size)
        tensor.string_val.extend(draw(st.lists(st.binary(max_size=5), max_size=3)))
        tensor.int_val.extend(draw(st.lists(NUMBERS, max_size=3)))
        tensor.float_val.extend(draw(st.lists(st.floats(width=32), max_size=3)))
        tensor.tensor_content = draw(st.sampled_from([b"", b"", b"\x00" * 4, b"\xff" * 8]))
    request.output_filter.extend(draw(st.lists(NAMES, max_size=2)))
    return request.SerializeToString()


@st.composite
def changed_messages(draw: Callable[..., Any]) -> tuple[str, bytes]:
    """Any method, with bytes that were a message until some were changed, cut off or put in; or with any bytes."""
    method = draw(st.sampled_from(sorted(METHODS)))
    kind = METHODS[method]
    if kind is None or draw(st.integers(0, 3)) == 0:
        return method, draw(st.binary(max_size=60))
    request = kind()
    spec = request.tasks.add().model_spec if kind is MultiInferenceRequest else request.model_spec
    spec.name, spec.version.value = draw(NAMES), draw(st.sampled_from([0, 1, -5, 2**62]))
    if hasattr(request, "input"):
        for text in draw(st.lists(st.binary(max_size=9), max_size=3)):
            example = request.input.example_list.examples.add()
            example.features.feature["text"].bytes_list.value.append(text)
    data = bytearray(request.SerializeToString())
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return method, bytes(data)


@pytest.fixture(scope="module")
def channel(server: Server) -> Iterator[grpc.Channel]:
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as channel:
        yield channel


def fuzz(server: Server, channel: grpc.Channel, cases: int) -> None:
    codes: dict[grpc.StatusCode, int] = {}

    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(changed_messages(), predict_requests().map(lambda data: (f"{PREDICTION}Predict", data))))
    def send(case: tuple[str, bytes]) -> None:
        method, data = case
        try:
            channel.unary_unary(method)(data, timeout=30)
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            code = error.code()
            assert code not in NEVER, (method, data, error.details())
        codes[code] = codes.get(code, 0) + 1

    send()
    with Client(f"127.0.0.1:{server.grpc_port}") as client:
        assert client.predict({"text": ["abc"]}, "length")["length"].tolist() == [3]
    # It was no use if all were refused for one reason.
    assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND} <= set(codes), codes


def test_no_proto_is_the_servers_fault(server: Server, channel: grpc.Channel) -> None:
    fuzz(server, channel, 400)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_proto_of_100_000_is_the_servers_fault(server: Server, channel: grpc.Channel) -> None:
    fuzz(server, channel, 100_000)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5)
KEYS = st.sampled_from(
    ["instances", "inputs", "examples", "context", "signature_name", "text", "b64", "real", "\ud800"]
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


def test_no_json_is_the_servers_fault(server: Server) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.rest_port}", trust_env=False, timeout=30) as http:

        @settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.sampled_from(["predict", "classify", "regress"]), st.dictionaries(KEYS, JSON, min_size=1) | JSON)
        def post(method: str, body: Any) -> None:
            answer = http.post(f"/v1/models/bert:{method}", content=json.dumps(body).encode())
            assert answer.status_code in (200, 400, 404), (body, answer.text)

        post()
