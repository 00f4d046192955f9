"""Random requests, half of them malformed: valid ones are answered, none is INTERNAL, and memory does not grow."""

import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from serving.protos import (
    ClassificationRequest,
    Example,
    GetModelMetadataRequest,
    GetModelStatusRequest,
    Input,
    ModelSpec,
    PredictRequest,
    RegressionRequest,
    types_pb2,
)
from serving.tensors import to_proto

PREDICTION, MODEL = "/tensorflow.serving.PredictionService/", "/tensorflow.serving.ModelService/"
METHODS: dict[str, Any] = {
    f"{PREDICTION}Predict": PredictRequest,
    f"{PREDICTION}Classify": ClassificationRequest,
    f"{PREDICTION}Regress": RegressionRequest,
    f"{PREDICTION}GetModelMetadata": GetModelMetadataRequest,
    f"{MODEL}GetModelStatus": GetModelStatusRequest,
    "/grpc.health.v1.Health/Check": None,
}
# Codes that mean a fault of the server.
NEVER = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED}
NAMES = st.sampled_from(["bert", "", "../bert", "length", "numbers", "spin", "text", "serving_default", "é" * 300])
# Not the `turns` of `spin`, which take time in proportion.
SIGNATURES = st.sampled_from(["", "length", "numbers", "echo", "encode", "evaluate", "none", "é" * 2000])
SIZES = st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**62, -(2**63), 5000])
NUMBERS = st.integers(-(2**31), 2**31 - 1)


@st.composite
def predict_requests(draw: Callable[..., Any]) -> bytes:
    """Well-formed messages with unusual content."""
    request: Any = PredictRequest(model_spec=ModelSpec(name=draw(NAMES), signature_name=draw(SIGNATURES)))
    if draw(st.booleans()):
        request.model_spec.name = "bert"
    for name in draw(
        st.lists(st.sampled_from(["text", "real", "whole", "examples", "", "é"]), max_size=3, unique=True)
    ):
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
    """Messages of any method with some bytes changed, cut off or inserted; or random bytes."""
    method = draw(st.sampled_from(sorted(METHODS)))
    kind = METHODS[method]
    if kind is None or draw(st.integers(0, 3)) == 0:
        return method, draw(st.binary(max_size=60))
    request = kind()
    spec = request.model_spec
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


TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=40)
ON_EXAMPLES = {"Classify": ("classify", ClassificationRequest), "Regress": ("regress", RegressionRequest)}


def example(text: str | None) -> Example:
    made = Example()
    if text is not None:
        made.features.feature["text"].bytes_list.value.append(text.encode())
    return made


def in_context(texts: list[str], context: str) -> Input:
    """Context text, added to every other Example."""
    found = Input()
    found.example_list_with_context.context.CopyFrom(example(context))
    found.example_list_with_context.examples.extend(
        example(None if number % 2 else text) for number, text in enumerate(texts)
    )
    return found


@st.composite
def good_messages(draw: Callable[..., Any]) -> tuple[str, bytes]:
    """Valid requests over gRPC."""
    texts = draw(TEXTS)
    kind = draw(st.sampled_from(["Predict", "Predict", "Classify", "Regress"]))
    if kind == "Predict":
        signature = draw(st.sampled_from(["length", "echo", "sequence", "encode_pair", "fill_mask", "evaluate"]))
        request: Any = PredictRequest(model_spec=ModelSpec(name="bert", signature_name=signature))
        if signature == "evaluate":
            request.inputs["examples"].CopyFrom(strings([example(text).SerializeToString() for text in texts]))
        else:
            mask = "[MASK]" * draw(st.integers(1, 20)) if signature == "fill_mask" else ""
            request.inputs["text"].CopyFrom(strings([(text + mask).encode() for text in texts]))
        if signature == "encode_pair":
            request.inputs["text_pair"].CopyFrom(strings([text[::-1].encode() for text in texts]))
        elif draw(st.booleans()):  # the last value is repeated for more rows
            next(iter(request.inputs.values())).tensor_shape.dim[0].size += draw(st.integers(1, 40))
    else:
        signature, message = ON_EXAMPLES[kind]
        request = message(model_spec=ModelSpec(name="bert", signature_name=signature))
        if draw(st.booleans()):
            request.input.CopyFrom(in_context(texts, draw(st.text(st.characters(codec="utf-8"), max_size=9))))
        else:
            request.input.example_list.examples.extend(map(example, texts))
    return f"{PREDICTION}{kind}", request.SerializeToString()


def strings(values: list[bytes]) -> Any:
    return to_proto(np.array([*values, b""], object)[:-1])


@st.composite
def good_bodies(draw: Callable[..., Any]) -> tuple[str, bytes]:
    """Valid requests over REST."""
    texts = draw(TEXTS)
    method = draw(st.sampled_from(["predict", "predict", "classify", "regress"]))
    if method == "predict":
        key, signature = draw(st.sampled_from(["instances", "inputs"])), draw(st.sampled_from(["length", "echo"]))
        body: dict[str, Any] = {key: texts, "signature_name": signature}
    else:
        body = {"examples": [{"text": text} for text in texts], "signature_name": method}
        if draw(st.booleans()):
            body["context"] = {"text_pair": "kept", "text": "replaced"}
    return method, json.dumps(body).encode()


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5)
KEYS = st.sampled_from(
    ["instances", "inputs", "examples", "context", "signature_name", "text", "b64", "real", "\ud800"]
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


BAD_BODIES = st.tuples(
    st.sampled_from(["predict", "classify", "regress"]),
    (st.dictionaries(KEYS, JSON, min_size=1) | JSON).map(lambda body: json.dumps(body).encode())
    | st.tuples(st.sampled_from(["instances", "inputs", "examples"]), st.integers(1, 1200)).map(
        lambda one: f'{{"{one[0]}": {"[" * one[1]}1{"]" * one[1]}, "signature_name": "length"}}'.encode()
    )
    | st.binary(max_size=60),
)
BAD_MESSAGES = changed_messages() | predict_requests().map(lambda data: (f"{PREDICTION}Predict", data))
# Codes of the server for an invalid body.
REFUSED = {200, 400, 404, 413}
# Answers of some hundred kilobytes come and go; a leak of a kilobyte per request would show.
WARM_UP, KEPT_MB = 1000, 32


@pytest.fixture(scope="module")
def process(
    tmp_path_factory: pytest.TempPathFactory, toy: Callable[..., Path], in_process: Callable[..., Any]
) -> Iterator[Any]:
    base = tmp_path_factory.mktemp("fuzzed")
    shutil.copytree(toy(1, on_examples=True), base / "1")
    yield in_process(base)


def fuzz(process: Any, cases: int) -> None:
    """Half of the cases are valid requests, over either port; every other REST request is compressed."""
    message: Counter[object] = Counter()
    memory: list[float] = []
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    choose = random.Random(5)
    with grpc.insecure_channel(f"127.0.0.1:{process.grpc_port}", options) as channel, process.rest() as http:

        @seed(5)
        @settings(max_examples=cases // 2, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(good_messages() | good_bodies(), BAD_MESSAGES | BAD_BODIES)
        def send(good: tuple[str, bytes], bad: tuple[str, bytes]) -> None:
            for (method, data), is_good in ((good, True), (bad, False)):
                if method.startswith("/"):
                    try:
                        channel.unary_unary(method)(data, timeout=120)
                        code = grpc.StatusCode.OK
                    except grpc.RpcError as error:
                        code = error.code()
                        assert not is_good and code not in NEVER, (method, data, error.details())
                    message[code] += 1
                else:
                    packed = choose.random() < 0.3
                    headers = {"Content-Encoding": "gzip"} if packed else {}
                    content = gzip.compress(data) if packed else data
                    answer = http.post(f"/v1/models/bert:{method}", content=content, headers=headers)
                    assert answer.status_code in ({200} if is_good else REFUSED), (method, data, answer.text)
                    message[answer.status_code] += 1
                if message.total() % WARM_UP == 0:
                    memory.append(process.memory_mb())

        send()
    process.ask()
    # The test would be void if all were refused for one reason.
    assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, 200, 400} <= set(
        message
    ), message
    print(dict(message), memory)
    assert not memory or max(memory[len(memory) // 2 :]) - memory[0] < KEPT_MB, memory


def test_no_request_causes_a_server_error(process: Any) -> None:
    fuzz(process, 500)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_50_000_requests_cause_no_server_error_and_no_leak(process: Any) -> None:
    fuzz(process, 50_000)


def claims() -> dict[str, tuple[str, Any]]:
    """Messages of a few bytes that stand for gigabytes."""
    spec = {name: ModelSpec(name="bert", signature_name=name) for name in ("length", "echo", "sequence", "classify")}
    wide, long, many, context = (
        *(PredictRequest(model_spec=spec[name]) for name in ("length", "echo", "sequence")),
        ClassificationRequest(model_spec=spec["classify"]),
    )
    for request, shape, text in (
        (wide, (1, 8_000_000), b"a"),
        (long, (4096,), b"a" * 1_000_000),
        (many, (4096,), b"word " * 100),
    ):
        tensor = request.inputs["text"]
        tensor.CopyFrom(to_proto(np.array([text], object)))
        del tensor.tensor_shape.dim[:]
        for size in shape:
            tensor.tensor_shape.dim.add(size=size)
    context.input.CopyFrom(in_context([""] * 4096, "word " * 10_800))
    for kept in context.input.example_list_with_context.examples:
        kept.Clear()
    some = {"wide": wide, "long": long, "many": many}
    return {**{name: ("Predict", request) for name, request in some.items()}, "context": ("Classify", context)}


@pytest.mark.parametrize("name", ["wide", "long", "many", "context"])
def test_small_messages_with_huge_tensors_are_refused_without_allocation(process: Any, name: str) -> None:
    method, request = claims()[name]
    process.forget_peak()
    before = process.memory_mb()
    with (
        grpc.insecure_channel(f"127.0.0.1:{process.grpc_port}", [("grpc.enable_http_proxy", 0)]) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(f"{PREDICTION}{method}")(request.SerializeToString(), timeout=60)
    assert caught.value.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert process.memory_mb("VmHWM") - before < KEPT_MB
    process.ask()
