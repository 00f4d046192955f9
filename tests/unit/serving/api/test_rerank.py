"""Rerankers over a real socket, in the forms of Cohere, Jina and text-embeddings-inference."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from serving.client import Client
from serving.middleware.settings import LimitSettings
from serving.server import Server
from tests.support.serving.running import running, wait_for

DOCUMENTS = ["ab", "abcdef", "abcd", "abcdef"]
NUMBERS = [-1.0, 1.0, 0.0, 1.0]  # for the query "xy"
BEST_FIRST = [1, 3, 2, 0]


def write_config(file: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Serve the models `names`; `again` is `cross` once more."""
    bases = {name: folder / name.replace("again", "cross") for name in names}
    served = (
        f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" }}' for name, base in bases.items()
    )
    file.write_text(f"model_config_list {{ {' '.join(served)} }}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]) -> Path:
    from tests.support.serving import toy

    folder = tmp_path_factory.mktemp("rerank")
    toy.save_pairs(folder / "cross" / "1")
    (folder / "bert").mkdir()
    push(folder / "bert", 1, 1)
    write_config(folder / "models", folder, ("cross", "bert", "empty"))
    return folder


@pytest.fixture(scope="module")
def reranker(folder: Path) -> Iterator[Server]:
    """A server of the pair toy `cross`, of a model without pairs, and of one without a version."""
    limits = LimitSettings(max_rows=40, max_request_bytes=5000, max_text_bytes=3000)
    with Server(model_config_file=folder / "models", grpc_port=0, rest_port=0, limits=limits) as server:
        wait_for(lambda: server.models.stores["cross"].newest and server.models.stores["bert"].newest)
        yield server


@pytest.fixture
def post(reranker: Server) -> Iterator[Callable[..., Any]]:
    with httpx.Client(base_url=f"http://127.0.0.1:{reranker.rest_port}", trust_env=False, timeout=120) as http:

        def post(path: str, **body: Any) -> Any:
            answer = http.post(path, content=json.dumps(body))
            return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json())

        yield post


def sigmoid(numbers: list[float]) -> list[float]:
    return [1 / (1 + np.exp(-number)) for number in numbers]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_documents_come_best_first_with_cohere_s_and_jina_s_fields(post: Callable[..., Any], path: str) -> None:
    answer = post(path, model="cross", query="xy", documents=DOCUMENTS)
    assert [set(result) for result in answer["results"]] == [{"index", "relevance_score"}] * 4
    assert [result["index"] for result in answer["results"]] == BEST_FIRST
    scores = [result["relevance_score"] for result in answer["results"]]
    np.testing.assert_allclose(scores, sigmoid([NUMBERS[index] for index in BEST_FIRST]), rtol=1e-6)
    assert answer["id"] and answer["meta"]["api_version"] and answer["model"] == "cross"
    assert answer["usage"] == {"total_tokens": sum(2 + len(text) for text in DOCUMENTS)}
    two = post(
        path, query="xy", documents=[{"text": text, "id": 1} for text in DOCUMENTS], top_n=2, return_documents=True
    )
    assert [result["document"] for result in two["results"]] == [{"text": "abcdef"}] * 2
    assert two["model"] == "cross"


def test_texts_have_a_bare_list_as_text_embeddings_inference(post: Callable[..., Any]) -> None:
    answer = post("/rerank", query="xy", texts=DOCUMENTS, raw_scores=True, return_text=True, truncate=False)
    expected = [{"index": index, "score": NUMBERS[index], "text": DOCUMENTS[index]} for index in BEST_FIRST]
    assert answer == expected
    scores = post("/rerank", model="cross", query="xy", texts=DOCUMENTS, truncation_direction="Right")
    assert scores[2] == {"index": 2, "score": 0.5}


def test_large_numbers_keep_their_order_and_small_ones_their_sigmoid(post: Callable[..., Any]) -> None:
    answer = post("/rerank", query="", texts=["x" * 100, "x" * 200])
    assert answer == [{"index": 1, "score": 1.0}, {"index": 0, "score": 1.0}]
    (answer,) = post("/rerank", query="x" * 80, texts=[""])
    assert answer["score"] == pytest.approx(np.exp(-80.0), rel=1e-6)
    assert post("/rerank", query="x" * 2000, texts=[""]) == [{"index": 0, "score": 0.0}]


def test_predict_gives_the_same_numbers_over_grpc(reranker: Server) -> None:
    with Client(f"127.0.0.1:{reranker.grpc_port}", model="cross", timeout=120) as client:
        answer = client.predict({"text": ["xy"] * 4, "text_pair": DOCUMENTS}, "serving_default")
    assert answer["score"].tolist() == NUMBERS


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"documents": ["a"]}, 400, "query must be a text"),
        ({"query": ["a"], "texts": ["a"]}, 400, "query must be a text"),
        ({"query": "a"}, 400, "documents must be a list of at least one text"),
        ({"query": "a", "texts": []}, 400, "texts must be a list of at least one text"),
        ({"query": "a", "documents": [{"title": "a"}]}, 400, 'or of objects {"text": "..."}'),
        ({"query": "a", "documents": ["a"], "top_n": 0}, 400, "top_n is 0; it must be a whole number, at least 1"),
        ({"query": "a", "documents": ["a"], "top_n": True}, 400, "top_n is True"),
        ({"query": "a", "documents": ["a"], "model": 1}, 400, "model is 1; it must be the name of a served model"),
        ({"query": "a", "documents": ["a"], "return_documents": 1}, 400, "return_documents is 1; it must be true or"),
        ({"query": "a", "texts": ["a"], "raw_scores": "yes"}, 400, "raw_scores is 'yes'; it must be true or false"),
        ({"query": "a", "documents": [{"text": "a"}], "rank_fields": ["title"]}, 400, "rank_fields is ['title']"),
        ({"query": "a", "documents": ["a"], "truncation": False}, 400, "truncation is False; it must be true: long"),
        ({"query": "a", "texts": ["a"], "truncation_direction": "Left"}, 400, "truncation_direction is 'Left'"),
        (
            {"query": "a", "documents": ["a"], "model": "bert"},
            400,
            "bert cannot rerank: push one of `bert-tfx finetune",
        ),
        ({"query": "a", "documents": ["a"], "model": "other"}, 404, "other"),
        ({"query": "a", "documents": ["a"], "model": "empty"}, 404, "empty"),
        ({"query": "a", "documents": ["a"] * 41}, 400, 'input "documents" has 41 rows'),
        ({"query": "a" * 200, "documents": ["a"] * 40}, 400, "the inputs have 8120 bytes once repeated values"),
        ({"query": "a", "documents": ["a", "b" * 3001]}, 400, 'input "text_pair", row 1: 3001 bytes'),
        ({"query": "\ud800", "documents": ["a"]}, 400, "half of a surrogate pair"),
        ({"query": "a", "documents": ["a" * 5001]}, 413, "the request body is larger than"),
    ],
)
def test_refusals_have_each_client_s_field(
    post: Callable[..., Any], body: dict[str, Any], status: int, message: str
) -> None:
    found, answer = post("/v2/rerank", **body)
    assert found == status and message in answer["message"]
    assert answer == dict.fromkeys(("message", "error", "detail"), answer["message"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("cross", "again"), "several models can rerank: cross, again; name one in model"),
        (("bert",), "bert cannot rerank: push one of `bert-tfx finetune"),
    ],
)
def test_without_a_name_exactly_one_model_must_be_able_to(
    folder: Path, tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    write_config(tmp_path / "models", folder, names)
    with running(model_config_file=tmp_path / "models") as server:
        body = {"query": "a", "texts": ["a"]}
        answer = httpx.post(f"http://127.0.0.1:{server.rest_port}/rerank", json=body, trust_env=False)
        assert answer.status_code == 400 and answer.json()["message"].startswith(message)
