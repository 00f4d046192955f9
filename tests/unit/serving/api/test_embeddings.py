"""OpenAI's embeddings over a real socket, compared with its API reference."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from serving.api import embeddings


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
    given = {"encoding_format": None, "dimensions": None, "user": None}
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
            {"model": "bert", "input": "a", "encoding_format": "int8"},
            400,
            "encoding_format must be one of float, base64",
        ),
        ({"model": "bert", "input": "a", "dimensions": 3}, 400, "dimensions is 3; the model's vectors have 2"),
        ({"model": "other", "input": "a"}, 404, "other"),
        ({"model": "bert", "input": "a" * 5_000_000}, 413, "the request body is larger than"),
    ],
)
def test_refusals_are_objects(http: httpx.Client, body: dict[str, Any], status: int, message: str) -> None:
    found, answer = post(http, **body)
    assert found == status and set(answer["error"]) == {"message", "type", "param", "code"}
    assert message in answer["error"]["message"] and answer["error"]["type"] == "invalid_request_error"


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
