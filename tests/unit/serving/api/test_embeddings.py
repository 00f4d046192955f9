"""OpenAI's embeddings over a real socket, compared with its API reference."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from serving.api import embeddings
from tests.support.serving.running import running


def post(http: httpx.Client, **body: Any) -> tuple[int, Any]:
    answer = http.post("/v1/embeddings", json=body)
    return answer.status_code, answer.json()


def vectors(answer: Any) -> np.ndarray:
    assert [row["index"] for row in answer["data"]] == list(range(len(answer["data"])))
    assert {row["object"] for row in answer["data"]} == {"embedding"}
    return np.array([row["embedding"] for row in answer["data"]], "float32")


def test_texts_have_vectors_and_tokens(http: httpx.Client) -> None:
    status, answer = post(http, model="bert", input=["abc", "", "abcde"], user="anyone")
    assert status == 200 and (answer["object"], answer["model"]) == ("list", "bert")
    expected = np.array([[1.5, 0.3], [0, 0], [2.5, 0.5]], "float32")
    np.testing.assert_allclose(vectors(answer), expected, rtol=1e-6)
    assert answer["usage"] == {"prompt_tokens": 14, "total_tokens": 14}
    status, one = post(http, model="bert", input="abc", encoding_format="float", dimensions=2)
    assert status == 200 and one["data"] == answer["data"][:1]


def test_null_is_the_default(http: httpx.Client) -> None:
    given = {"encoding_format": None, "dimensions": None, "user": None, "truncation": None}
    status, answer = post(http, model="bert", input="abc", **given)
    assert (status, answer) == post(http, model="bert", input="abc") and status == 200


def test_base64_is_little_endian_float32(http: httpx.Client) -> None:
    _, numbers = post(http, model="bert", input=["abc", "x"])
    _, encoded = post(http, model="bert", input=["abc", "x"], encoding_format="base64")
    read = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in encoded["data"]]
    np.testing.assert_array_equal(read, vectors(numbers))
    assert encoded["usage"] == numbers["usage"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": "a"}, 400, "model must be the name of a served model"),
        ({"model": "bert"}, 400, "input must be a text or a list of at least one text"),
        ({"model": "bert", "input": []}, 400, "input must be"),
        ({"model": "bert", "input": [[1, 2]]}, 400, "token ids are not taken"),
        ({"model": "bert", "input": ["a", 1]}, 400, "input must be"),
        (
            {"model": "bert", "input": "a", "encoding_format": "int4"},
            400,
            "encoding_format must be one of float, int8, uint8, binary, ubinary, base64",
        ),
        ({"model": "bert", "input": "a", "output_dtype": "base64"}, 400, "output_dtype must be one of float, int8"),
        ({"model": "bert", "input": "a", "encoding_format": "binary"}, 400, "binary is for a multiple of 8 dimensions"),
        ({"model": "bert", "input": "a", "truncation": False}, 400, "truncate (Cohere) must be END, truncation (Vo"),
        ({"model": "bert", "input": "a", "dimensions": 3}, 400, "dimensions is 3; it must be from 1 to 2"),
        ({"model": "bert", "input": "a", "dimensions": 0}, 400, "dimensions is 0; it must be from 1 to 2"),
        ({"model": "bert", "input": "a", "output_dimension": 1.5}, 400, "dimensions is 1.5; it must be from 1 to 2"),
        ({"model": "other", "input": "a"}, 404, "other"),
        ({"model": "bert", "input": "a" * 5_000_000}, 413, "the request body is larger than"),
    ],
)
def test_refusals_are_objects(http: httpx.Client, body: dict[str, Any], status: int, message: str) -> None:
    found, answer = post(http, **body)
    assert found == status and set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["detail"] == answer["error"]["message"]  # Voyage's
    assert message in answer["detail"] and answer["error"]["type"] == "invalid_request_error"


def test_a_model_without_vectors_is_refused_with_the_remedy(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "SIGNATURE", "missing")
    status, answer = post(http, model="bert", input="a")
    assert status == 400 and "signature def" not in answer["error"]["message"]
    assert answer["error"]["message"].startswith(
        "bert has no vectors of texts: push one of `bert-tfx finetune sentence-"
    )
    assert post(http, model="other", input="a")[0] == 404


def test_another_method_is_a_bad_request(http: httpx.Client) -> None:
    assert http.get("/v1/embeddings").status_code == 400


def test_short_vectors_keep_their_length_and_a_header_warns_if_the_model_was_not_trained_for_them(
    http: httpx.Client, tmp_path: Path, push: Callable[[Path, int, int], Path]
) -> None:
    body = {"model": "bert", "input": ["abc", "", "abcde"], "dimensions": 1}
    answer = http.post("/v1/embeddings", json=body)
    lengths = np.linalg.norm([[1.5, 0.3], [0, 0], [2.5, 0.5]], axis=1)
    np.testing.assert_allclose(vectors(answer.json())[:, 0], lengths, rtol=1e-6)
    warning = "the model was not trained for vectors of 1 dimensions"
    assert answer.headers[embeddings.WARNING_HEADER] == warning
    for size, warns in ((2, False), (1, True)):
        voyage = {"model": "bert", "input": "abc", "output_dimension": size}
        answer = http.post("/v1/embeddings", json=voyage)
        assert vectors(answer.json()).shape == (1, size) and (embeddings.WARNING_HEADER in answer.headers) == warns
    settings = {"embedding": {"pooling": "mean", "matryoshka_dimensions": [1]}}
    (push(tmp_path, 1, 1) / "bert_config.json").write_text(json.dumps(settings))
    with running(tmp_path) as server:
        answer = httpx.post(f"http://127.0.0.1:{server.rest_port}/v1/embeddings", json=body, trust_env=False)
    assert embeddings.WARNING_HEADER not in answer.headers and vectors(answer.json()).shape == (3, 1)


VECTORS = np.random.RandomState(0).normal(0, 1, (5, 64)).astype("float32")


def encoded(kind: str, as_base64: bool = False, vectors: np.ndarray = VECTORS) -> Any:
    body = {"model": "bert", "input": "a", "encoding_format": "base64" if as_base64 else None, "output_dtype": kind}
    _, request = embeddings.parse_request(json.dumps(body).encode(), False)
    outputs = {"embedding": vectors, "num_tokens": np.ones(5, np.int32)}
    return [row["embedding"] for row in json.loads(embeddings.answer(request, outputs))["data"]]


def test_int8_keeps_directions_and_dot_products() -> None:
    int8 = np.array(encoded("int8"))
    np.testing.assert_array_equal(encoded("uint8"), int8 + 128)
    norms = np.linalg.norm(int8, axis=1)
    np.testing.assert_allclose(norms, 127 * 8 / 5, rtol=0.01)  # so dot products are cosines
    directions = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    np.testing.assert_allclose((int8 * directions).sum(axis=1) / norms, 1, atol=2e-4)
    one = -np.eye(5, 64, dtype="float32")  # all of the length in one value
    assert np.min(encoded("int8", vectors=one)) == -127 and np.min(encoded("uint8", vectors=one)) == 1


def test_binary_is_a_bit_a_dimension_the_first_the_highest() -> None:
    bits = np.unpackbits(np.array(encoded("ubinary"), np.uint8), axis=1)
    np.testing.assert_array_equal(bits, VECTORS > 0)
    np.testing.assert_array_equal(np.array(encoded("binary")) + 128, encoded("ubinary"))


@pytest.mark.parametrize("kind", ["int8", "uint8", "binary", "ubinary"])
def test_base64_of_integers_is_a_byte_each(kind: str) -> None:
    """As voyageai.util.decode_base64_embedding reads it."""
    dtype = np.uint8 if kind.startswith("u") else np.int8
    read = [np.frombuffer(base64.b64decode(text), dtype) for text in encoded(kind, True)]
    np.testing.assert_array_equal(read, encoded(kind))


def test_an_encoding_format_or_an_output_dtype_names_the_type(http: httpx.Client) -> None:
    expected = np.rint(127 * 2**0.5 / 5 * np.array([5, 1]) / 26**0.5).tolist()  # in the direction of [0.5, 0.1]
    for fields in ({"encoding_format": "int8"}, {"output_dtype": "int8"}):
        assert post(http, model="bert", input="abc", **fields)[1]["data"][0]["embedding"] == expected
    answer = post(http, model="bert", input="abc", output_dtype="int8", encoding_format="base64")[1]["data"][0]
    assert np.frombuffer(base64.b64decode(answer["embedding"]), np.int8).tolist() == expected


def test_cohere_s_embed(http: httpx.Client) -> None:
    body = {"model": "bert", "texts": ["abc", "abcde"], "input_type": "search_query", "truncate": "END"}
    assert http.post("/v2/embed", json={**body, "embedding_types": []}).json()["embeddings"] == {}
    answer = http.post("/v2/embed", json={**body, "embedding_types": ["float", "base64", "uint8"]}).json()
    by_type = answer["embeddings"]
    np.testing.assert_allclose(by_type["float"], [[1.5, 0.3], [2.5, 0.5]], rtol=1e-6)
    read = [np.frombuffer(base64.b64decode(text), "<f4") for text in by_type["base64"]]
    np.testing.assert_array_equal(read, np.array(by_type["float"], "float32"))
    assert by_type["uint8"] == [[163, 135]] * 2 and answer["texts"] == body["texts"] and answer["id"]
    assert answer["meta"]["billed_units"] == {"input_tokens": 12}
    short = http.post("/v2/embed", json={**body, "output_dimension": 1})
    assert np.shape(short.json()["embeddings"]["float"]) == (2, 1) and embeddings.WARNING_HEADER in short.headers
    for wrong, message in (
        ({"texts": []}, "texts must be a text or a list of at least one text"),
        ({"embedding_types": ["float16"]}, "embedding_types must be one of float, int8"),
        ({"model": None}, "model must be the name of a served model"),
        *(({"truncate": value}, "long texts are cut: truncate (Cohere) must be END") for value in ("NONE", "START", 1)),
    ):
        refused = http.post("/v2/embed", json={**body, **wrong})
        assert refused.status_code == 400 and refused.json()["message"].startswith(message)
