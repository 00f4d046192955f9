"""KServe's V2 over a real socket, compared with the Open Inference Protocol and Triton's extension for binary tensors.

Others' clients: tests/clients.
"""

import json
import struct
from typing import Any

import httpx
import pytest

from serving.api.kserve import LENGTH_HEADER

INFER = "/v2/models/bert/infer"
NUMBERS = [
    {"name": "real", "shape": [1, 2], "datatype": "FP32", "data": [1, 2.5]},
    {"name": "whole", "shape": [1], "datatype": "INT32", "data": [7]},
]


def texts(*values: str, **fields: Any) -> dict[str, Any]:
    return {"name": "text", "shape": [len(values)], "datatype": "BYTES", "data": list(values), **fields}


def body(*inputs: dict[str, Any], signature: str = "length", **fields: Any) -> dict[str, Any]:
    return {"inputs": list(inputs), "parameters": {"signature_name": signature}, **fields}


def binary(request: dict[str, Any], *parts: bytes) -> dict[str, Any]:
    text = json.dumps(request).encode()
    return {"content": text + b"".join(parts), "headers": {LENGTH_HEADER: str(len(text))}}


@pytest.mark.parametrize("path", [INFER, "/v2/models/bert/versions/1/infer"])
def test_texts(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json=body(texts("a", "abc"), id="7"))
    assert answer.headers["X-Model-Version"] == "1" and answer.json() == {
        "model_name": "bert",
        "model_version": "1",
        "outputs": [{"name": "length", "datatype": "INT32", "shape": [2], "data": [1, 3]}],
        "id": "7",
    }


@pytest.mark.parametrize("real", [[1, 2.5], [[1, 2.5]]])
def test_numbers_flat_and_nested_and_chosen_outputs(http: httpx.Client, real: Any) -> None:
    inputs = [{**NUMBERS[0], "data": real}, NUMBERS[1]]
    answer = http.post(INFER, json=body(*inputs, signature="numbers", outputs=[{"name": "whole"}, {"name": "real"}]))
    assert [(o["name"], o["shape"], o["data"]) for o in answer.json()["outputs"]] == [
        ("whole", [1], [8]),
        ("real", [1, 2], [0.1, 0.25]),
    ]


def test_the_default_signature(http: httpx.Client) -> None:
    (scores, tokens) = http.post(INFER, json={"inputs": [texts("[MASK]")]}).json()["outputs"]
    assert (tokens["shape"], tokens["data"], scores["data"]) == ([1, 1, 2], ["0a", "0b"], [0.2, 0.1])


def test_binary_tensors(http: httpx.Client) -> None:
    sized = {"parameters": {"binary_data_size": 8}}
    inputs = [{"name": "real", "shape": [1, 2], "datatype": "FP32", **sized}, NUMBERS[1]]
    outputs = [{"name": "real", "parameters": {"binary_data": True}}, {"name": "whole"}]
    request = binary(body(*inputs, signature="numbers", outputs=outputs), struct.pack("<2f", 1, 2.5))
    answer = http.post(INFER, **request)
    end = int(answer.headers[LENGTH_HEADER])
    described = json.loads(answer.content[:end])["outputs"]
    assert [o.get("data") for o in described] == [None, [8]] and described[0]["parameters"] == {"binary_data_size": 8}
    assert struct.unpack("<2f", answer.content[end:]) == pytest.approx((0.1, 0.25))


def test_binary_texts(http: httpx.Client) -> None:
    raw = b"".join(struct.pack("<I", len(text)) + text for text in (b"ab", b"", "é".encode()))
    request = body(texts(shape=[3], parameters={"binary_data_size": len(raw)}), signature="echo")
    request["parameters"]["binary_data_output"] = True
    answer = http.post(INFER, **binary(request, raw))
    assert answer.content[int(answer.headers[LENGTH_HEADER]) :] == raw + raw  # as_bytes and text


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"inputs": []}, "takes text: DT_STRING[?]; given: nothing"),
        ({"inputs": [1]}, "inputs must be a list of objects, each with a name"),
        (body(texts("a"), outputs=[{}]), "outputs must be a list of objects, each with a name"),
        (body(texts("a"), id="\ud800"), "half of a surrogate pair"),
        (body(texts("a"), parameters=1), "parameters must be an object"),
        (body(texts("a"), signature=1), "signature_name must be a string"),  # type: ignore[arg-type]
        (body(texts("a", name="b")), "no input 'b'; expected: text"),
        (body(texts("a", datatype="FP32")), "given: 'FP32'[1]"),
        (body(texts("a", shape=[1, 1])), "given: 'BYTES'[1, 1]"),
        (body(texts("a", shape=[True])), "shape must be a list of sizes"),
        (body(texts("a", shape=[-1])), "shape must be a list of sizes"),
        (body({**NUMBERS[0], "shape": [0, 2**62]}, signature="numbers"), "is too large"),
        (body(texts("a", shape=[2])), "expected a list of size 2"),
        (body(texts("a", data=None)), "expected a list of size 1"),
        (body(texts("a", shape=[10**6])), "at most"),
        (body(texts(parameters={"binary_data_size": 4})), "binary_data_size is 4 of 0 bytes"),
        (body(texts("a"), outputs=[{"name": "none"}]), "output tensor alias not found in signature: none"),
    ],
)
def test_what_is_wrong_is_named(http: httpx.Client, request_: dict[str, Any], message: str) -> None:
    answer = http.post(INFER, content=json.dumps(request_))
    assert answer.status_code == 400 and message in answer.json()["error"]


@pytest.mark.parametrize("raw", [b"", b"\x01\0\0\0", b"\x01\0\0\0ab", b"\xff\xff\xff\xffa", b"\0\0\0\0" * 2])
def test_binary_texts_that_do_not_add_up(http: httpx.Client, raw: bytes) -> None:
    request = body(texts(shape=[1], parameters={"binary_data_size": len(raw)}))
    answer = http.post(INFER, **binary(request, raw))
    assert answer.status_code == 400 and "are not 1 texts" in answer.json()["error"]


@pytest.mark.parametrize("length", ["-1", "x", "9999"])
def test_a_wrong_length_of_the_json(http: httpx.Client, length: str) -> None:
    answer = http.post(INFER, content=json.dumps(body(texts("a"))), headers={LENGTH_HEADER: length})
    assert answer.status_code == 400 and LENGTH_HEADER in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "status", "answer"),
    [
        ("/v2", 200, {"name": "bert-tfx", "version": "2", "extensions": ["binary_tensor_data"]}),
        ("/v2/health/live", 200, {"live": True}),
        ("/v2/health/ready", 200, {"ready": True}),
        ("/v2/models/bert/ready", 200, {"name": "bert", "ready": True}),
        ("/v2/models/none/ready", 404, None),
        ("/v2/models/bert/versions/2/ready", 404, None),
        (f"/v2/models/bert/versions/{'9' * 5000}/ready", 404, None),
        ("/v2/models/bert/ready/", 404, None),  # not a redirect to the host that the client names
        ("/v2/health/other", 404, None),
    ],
)
def test_health_and_readiness(http: httpx.Client, path: str, status: int, answer: Any) -> None:
    got = http.get(path)
    assert got.status_code == status and answer in (None, got.json())


def test_metadata(http: httpx.Client) -> None:
    answer = http.get("/v2/models/bert").json()
    assert answer["versions"] == ["1"] and answer["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert {output["name"]: output["datatype"] for output in answer["outputs"]} == {"scores": "FP32", "tokens": "BYTES"}


def test_requests_are_counted_as_predict(http: httpx.Client) -> None:
    def counted() -> str:
        page = http.get("/monitoring/prometheus/metrics").text
        return next(line for line in page.splitlines() if 'request_count{model_name="bert",status="OK"}' in line)

    before = float(counted().split()[-1])
    http.post(INFER, json=body(texts("a")))
    assert float(counted().split()[-1]) == before + 1
