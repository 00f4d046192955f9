"""REST v1 over a real socket, compared with TensorFlow Serving's api_rest.md and json_tensor.cc."""

import base64
import gzip
import resource
import socket
from typing import Any

import httpx
import pytest

from serving.middleware import connections
from serving.server import Server

PREDICT = "/v1/models/bert:predict"


MASKS = {"predictions": [{"tokens": [["0a", "0b"]], "scores": [[0.2, 0.1]]}]}
NUMBERS = {"all": 3.5, "real": [[0.1, 0.25]], "whole": [8]}


@pytest.mark.parametrize(
    ("signature", "request_", "answer"),
    [
        ("", {"instances": ["[MASK]"]}, MASKS),
        ("fill_mask", {"instances": [{"text": "[MASK]"}]}, MASKS),
        ("length", {"instances": ["a", "abc"]}, {"predictions": [1, 3]}),
        ("length", {"inputs": ["a", "abc"]}, {"outputs": [1, 3]}),
        ("length", {"inputs": {"text": ["a", "abc"]}}, {"outputs": [1, 3]}),
        ("numbers", {"inputs": {"real": [[1, 2.5]], "whole": [7]}}, {"outputs": NUMBERS}),
        # An input with a default is left out.
        ("encode", {"instances": ["abc"]}, {"predictions": [{"pooled_output": [3.0, 3.0, 3.0], "tokens": "abc"}]}),
    ],
)
def test_rows_and_columns(http: httpx.Client, signature: str, request_: dict[str, Any], answer: Any) -> None:
    found = http.post(PREDICT, json=request_ | {"signature_name": signature})
    assert (found.json(), found.headers["content-type"]) == (answer, "application/json")


def test_a_compressed_body(http: httpx.Client) -> None:
    """As in TensorFlow Serving's HTTP server; the limit applies to the decompressed body, too."""
    body = b'{"instances": ["a", "abc"], "signature_name": "length"}'

    def post(content: bytes, coding: str = "gzip") -> tuple[int, Any]:
        answer = http.post(PREDICT, content=content, headers={"Content-Encoding": coding})
        return answer.status_code, answer.json()

    packed = gzip.compress(body)
    assert post(packed) == post(packed, "GZip") == post(body, "identity") == (200, {"predictions": [1, 3]})
    assert post(body) == (400, {"error": "the request body is not gzip, contrary to its Content-Encoding"})
    for half in (packed[:-3], packed + packed, b""):
        assert post(half) == (400, {"error": "the request body is not one complete gzip stream"})
    assert post(packed, "br") == (415, {"error": "Content-Encoding 'br' is not supported; gzip is"})
    bomb = gzip.compress(bytes(200_000_000), 1)
    assert len(bomb) < 2**20
    before = peak_bytes()
    assert post(bomb) == (413, {"error": "the request body is larger than 4194304 bytes"})
    assert peak_bytes() - before < 100e6


def peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_rows_need_outputs_of_one_batch_size(http: httpx.Client) -> None:
    rows = {"instances": [{"real": [1, 2], "whole": 7}], "signature_name": "numbers"}
    answer = http.post(PREDICT, json=rows)
    assert answer.status_code == 400 and "batch size" in answer.json()["error"]


def test_bytes(http: httpx.Client) -> None:
    def b64(data: bytes) -> dict[str, str]:
        return {"b64": base64.b64encode(data).decode()}

    request = {"instances": [b64(b"\xff\x00"), b64("é\0".encode()), "ü"], "signature_name": "echo"}
    assert http.post(PREDICT, json=request).json()["predictions"] == [
        {"as_bytes": b64(b"\xff\x00"), "text": b64(b"\xff\x00")},
        {"as_bytes": b64("é\0".encode()), "text": "é\0"},
        {"as_bytes": b64("ü".encode()), "text": "ü"},
    ]


def test_not_a_number_is_written_as_tensorflow_serving_writes_it(http: httpx.Client) -> None:
    body = b'{"inputs": {"real": [[NaN, -Infinity]], "whole": [1]}, "signature_name": "numbers"}'
    text = http.post(PREDICT, content=body).text
    assert '"real":[[NaN, -Infinity]]' in text


def test_status_and_metadata(http: httpx.Client) -> None:
    available = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in ("/v1/models/bert", "/v1/models/bert/versions/1"):
        assert http.get(path).json() == {"model_version_status": [available]}
    metadata = http.get("/v1/models/bert/metadata").json()
    assert http.get("/v1/models/bert/versions/1/metadata").json() == metadata
    assert metadata["model_spec"] == {"name": "bert", "signature_name": "", "version": "1"}
    signature = metadata["metadata"]["signature_def"]["signature_def"]["fill_mask"]
    text = signature["inputs"]["text"]
    assert (text["dtype"], text["tensor_shape"]) == (
        "DT_STRING",
        {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
    )
    assert signature["method_name"] == "tensorflow/serving/predict"


def test_a_version_in_the_path(http: httpx.Client) -> None:
    body = {"instances": ["abc"], "signature_name": "length"}
    assert http.post("/v1/models/bert/versions/1:predict", json=body).json() == {"predictions": [3]}
    missing = http.post("/v1/models/bert/versions/99999999999999999999:predict", json=body)
    assert missing.status_code == 404 and "Specific(bert, 99999999999999999999)" in missing.json()["error"]


@pytest.mark.parametrize(
    "method, path, status, message",
    [
        ("GET", "/v1/models/other", 404, "Could not find any versions of model other"),
        ("GET", "/v1/models/bert/versions/2", 404, "Could not find version 2 of model bert"),
        ("GET", "/v1/models/bert/versions/2/metadata", 404, "Servable not found"),
        pytest.param(
            "GET",
            f"/v1/models/bert/versions/{'9' * 5000}",
            400,
            "Malformed request: GET /v1/models/bert/versions/99",
            id="digits",
        ),
        ("GET", "/v1/models/bert/versions/two", 400, "Malformed request: GET /v1/models/bert/versions/two"),
        ("GET", PREDICT, 404, "Could not find any versions of model bert:predict"),
        ("PUT", PREDICT, 400, "Malformed request: PUT"),
        ("POST", "/v1/models/bert:guess", 400, "Malformed request"),
        ("GET", "/elsewhere", 404, "Malformed request"),
    ],
)
def test_wrong_paths(http: httpx.Client, method: str, path: str, status: int, message: str) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


@pytest.mark.parametrize(
    "body, message",
    [
        (b"", "JSON Parse error"),
        (b'{"instances": ["a"', "JSON Parse error"),
        (b'{"instances": ["\xff"]}', "JSON Parse error"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "Is not object"),
        (b"{}", "exactly one of"),
        (b'{"instances": ["a"], "inputs": ["a"]}', "exactly one of"),
        (b'{"instances": []}', "at least one"),
        (b'{"instances": "a"}', "must be a list"),
        (b'{"instances": ["a"], "signature_name": 3}', "must be a string"),
        (b'{"instances": ["a"], "signature_name": "none"}', "encode, encode_pair, fill_mask, length"),
        (b'{"instances": [{"texts": "a"}]}', "named input: texts; expected: text"),
        (b'{"instances": [{"text": "a"}, "b"]}', "element: 1"),
        (b'{"instances": ["b", {"text": "a"}]}', "element: 0"),
        (b'{"instances": ["a", ["b"]]}', "nested more deeply"),
        (b'{"instances": [["a"], ["b", "c"]]}', "text: DT_STRING[?]; given: DT_STRING[2, 1]"),
        (
            b'{"inputs": {"real": [[1, 2], [3]], "whole": [1, 2]}, "signature_name": "numbers"}',
            "input real: expected a list of size 2 as in the first element, got [3]",
        ),
        (
            b'{"inputs": {"text": ["a", "b", "c"], "text_pair": ["d", "e"]}, "signature_name": "next_sentence"}',
            'signature "next_sentence": all inputs must have the same number of rows; given: text 3, text_pair 2',
        ),
        (b'{"instances": [["a"]]}', "text: DT_STRING[?]; given: DT_STRING[1, 1]"),
        (b'{"instances": [1]}', "JSON Value: 1 is not of expected type: DT_STRING"),
        (b'{"instances": [null]}', "None is not of expected type"),
        (b'{"instances": [{"b64": "!"}]}', "base64"),
        (b'{"instances": ["\\ud800"]}', "surrogate"),
        (b'{"inputs": {"\\ud800": null}}', "half of a surrogate pair"),
        *(
            (b'{"%s": %s"a"%s, "signature_name": "length"}' % (key, b"[" * depth, b"]" * depth), "more than 32 deep")
            for key in (b"instances", b"inputs")
            for depth in (33, 500)
        ),
        (b'{"instances": ["a"], "signature_name": "numbers"}', "keyed by input: real, whole"),
        (b'{"inputs": {"real": [[1, true]], "whole": [1]}, "signature_name": "numbers"}', "DT_FLOAT"),
        (
            b'{"inputs": {"real": [[1, 1e300]], "whole": [1]}, "signature_name": "numbers"}',
            "loss of precision",
        ),
        (b'{"inputs": {"real": [[1, 1]], "whole": [3000000000]}, "signature_name": "numbers"}', "int32"),
        (b'{"inputs": {"real": [[1, 1]], "whole": [1.5]}, "signature_name": "numbers"}', "DT_INT32"),
        (b'{"inputs": {"real": [[1, 1]]}, "signature_name": "numbers"}', "given: real"),
        (b'{"instances": ["nothing"]}', "no [MASK] in text 0"),
    ],
)
def test_invalid_bodies_are_a_400_with_the_reason(http: httpx.Client, body: bytes, message: str) -> None:
    answer = http.post(PREDICT, content=body)
    assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text


def test_a_long_text_passes_and_a_longer_one_is_refused(http: httpx.Client) -> None:
    def post(characters: int) -> Any:
        return http.post(PREDICT, json={"instances": ["x" * characters], "signature_name": "length"})

    assert post(1_000_000).json() == {"predictions": [1_000_000]}
    assert "a text may have at most 1048576" in post(4_000_000).json()["error"]
    refused = post(4_200_000)
    assert refused.status_code == 413 and "4194304" in refused.json()["error"]


def test_misbehaving_clients_do_not_crash_the_server(server: Server, http: httpx.Client) -> None:
    for sent in (
        b"\x00\xff\r\n\r\n",
        b"POST /v1/models/bert:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{",
    ):
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=120) as connection:
            connection.sendall(sent)
    assert http.get("/v1/models/bert").status_code == 200


def test_answers_on_a_kept_connection_do_not_wait_for_acknowledgements(server: Server, http: httpx.Client) -> None:
    """Without TCP_NODELAY every answer but the first few takes 40 ms or more; with it, 2 to 3 on an idle machine."""
    http.get("/v1/models")
    waits = [
        not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for _, peer, one in connections._sockets_of(server.rest_port)
        if peer is not None
    ]
    assert waits and not any(waits)
