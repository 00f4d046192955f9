"""Prometheus metrics, at TensorFlow Serving's path and under its names."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.client import Client, ClientError
from serving.middleware.metrics import PATH, Metrics, resident_bytes
from serving.middleware.request_log import RequestRecord
from tests.support.serving.running import running

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(page: str) -> Samples:
    """{(name, sorted labels): value}, as Prometheus parses them."""

    def written(name: str) -> str:
        # The parser adds the suffix of Prometheus' own counters.
        return name if f"\n{name}" in page else name.removesuffix("_total")

    return {
        (written(sample.name), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def value(page: str, name: str, **labels: str) -> float | None:
    return samples(page).get((name, tuple(sorted(labels.items()))))


@pytest.fixture(scope="module")
def page(
    tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]
) -> Iterator[tuple[str, str, Path]]:
    """The page before and after some requests, and the model's folder."""
    base = tmp_path_factory.mktemp("counted")
    (base / "3").mkdir()
    (base / "3" / "saved_model.pb").write_bytes(b"\xff no model")
    push(base, 2, 2)
    with (
        running(base) as server,
        Client(f"127.0.0.1:{server.grpc_port}") as client,
        Client(f"127.0.0.1:{server.grpc_port}", model="made up") as lost,
        httpx.Client(base_url=f"http://127.0.0.1:{server.rest_port}", trust_env=False, timeout=120) as http,
    ):
        before = http.get(PATH)
        assert before.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        for _ in range(3):
            client.predict({"text": ["a", "b"]}, "length")
        for bad in (lambda: client.fill_mask(["no mask"]), lambda: client.predict({}), lost.metadata):
            with pytest.raises(ClientError):
                bad()
        for number in range(4):
            with pytest.raises(ClientError):
                lost.predict({"text": ["a"]}, f"made up {number}")
        assert http.post("/v1/models/bert:predict", json={"instances": ["[MASK]"]}).status_code == 200
        assert http.post("/v1/models/bert:predict", json={}).status_code == 400
        assert http.post("/v1/models/bert:predict", content=b"x" * 5_000_000).status_code == 413
        assert http.post("/v1/models/made%20up:predict", json={}).status_code == 400
        vectors = "/v1/embeddings"
        assert http.post(vectors, json={"model": "bert", "input": ["a", "b"]}).status_code == 200
        assert http.post(vectors, json={"model": "bert", "input": ["a"], "dimensions": 7}).status_code == 400
        assert http.post(vectors, json={"model": "made up", "input": ["a"]}).status_code == 404
        client.status()
        yield before.text, http.get(PATH).text, base


def test_requests_are_counted_under_tensorflow_servings_names(page: tuple[str, str, Path]) -> None:
    before, after, _ = page
    count = ":tensorflow:serving:request_count"
    assert f"# TYPE {count} counter" in before and f"\n{count}{{" not in before
    assert value(after, count, model_name="bert", status="OK") == 5
    # Also refused before the model was looked up: a malformed body, and one that is too large.
    assert value(after, count, model_name="bert", status="INVALID_ARGUMENT") == 4
    assert value(after, count, model_name="bert", status="RESOURCE_EXHAUSTED") == 1
    latency = ":tensorflow:serving:request_latency_count"
    assert value(after, latency, model_name="bert", API="Predict", entrypoint="GRPC") == 3
    assert value(after, latency, model_name="bert", API="Predict", entrypoint="REST") == 1
    assert value(after, latency, model_name="bert", API="Embeddings", entrypoint="REST") == 1
    total = value(after, ":tensorflow:serving:request_latency_sum", model_name="bert", API="Predict", entrypoint="GRPC")
    assert total is not None and 3 * 10 < total < 3 * 60e6  # microseconds
    assert value(after, "bert_tfx_request_rows_sum", model_name="bert") == 3 * 2 + 1 + 1 + 2 + 1
    assert value(after, "bert_tfx_model_version", model_name="bert") == 2


def test_unknown_model_names_do_not_create_time_series(page: tuple[str, str, Path]) -> None:
    _, after, _ = page
    assert "made up" not in after
    assert value(after, ":tensorflow:serving:request_count", model_name="", status="NOT_FOUND") == 5
    assert value(after, ":tensorflow:serving:request_count", model_name="", status="INVALID_ARGUMENT") == 1


def test_loads_and_warm_ups(page: tuple[str, str, Path]) -> None:
    _, after, base = page
    attempts = ":tensorflow:cc:saved_model:load_attempt_count"
    assert value(after, attempts, model_path=str(base / "2"), status="success") == 1
    assert value(after, attempts, model_path=str(base / "3"), status="fail") == 1
    latency = ":tensorflow:cc:saved_model:load_latency"
    assert (value(after, latency, model_path=str(base / "2")) or 0) > 1000
    assert value(after, latency, model_path=str(base / "3")) is None
    warm = ":tensorflow:serving:model_warmup_latency_count"
    assert value(after, warm, model_path=str(base / "2"), status="OK") == 1


def test_the_memory_of_the_process(page: tuple[str, str, Path]) -> None:
    _, after, _ = page
    shown = value(after, "bert_tfx_process_resident_bytes")
    assert shown is not None and abs(shown - resident_bytes()) < 0.5 * shown and shown > 50e6


def test_examples_gauges_and_a_warm_up_that_fails() -> None:
    metrics = Metrics()
    metrics(RequestRecord("Classify", "REST", "bert", 7, "classify", rows=5, seconds=0.25, code=grpc.StatusCode.OK))
    metrics(RequestRecord("Rerank", "REST", "cross", 7, rows=4, code=grpc.StatusCode.OK))
    metrics(RequestRecord("GetModelStatus", "GRPC", "bert", 7, code=grpc.StatusCode.OK))
    metrics.watch("queue_length", "Requests that wait.", lambda: 3)
    with pytest.raises(ValueError), metrics.measured("warm-up", Path("/base/7")):
        raise ValueError("cold")
    page = metrics.page().decode()
    assert value(page, ":tensorflow:serving:request_example_count_total", model="bert") == 5
    assert value(page, ":tensorflow:serving:request_example_counts_bucket", model="bert", le="4.0") == 0
    assert value(page, ":tensorflow:serving:request_example_counts_bucket", model="bert", le="8.0") == 1
    latency = {"model_name": "bert", "API": "Classify", "entrypoint": "REST"}
    assert value(page, ":tensorflow:serving:request_latency_sum", **latency) == pytest.approx(250_000)
    counted = [name for name, _ in samples(page) if name == ":tensorflow:serving:request_count"]
    assert len(counted) == 2
    assert value(page, ":tensorflow:serving:request_count", model_name="cross", status="OK") == 1
    assert value(page, "bert_tfx_queue_length") == 3
    warm = ":tensorflow:serving:model_warmup_latency_count"
    assert value(page, warm, model_path="/base/7", status="INTERNAL") == 1
    assert "_created" not in page
