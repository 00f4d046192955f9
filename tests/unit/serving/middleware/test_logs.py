"""The access log, and absence of request texts from all logs."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from serving.client import Client, ClientError
from serving.errors import SettingsError
from serving.middleware import rest_calls
from serving.middleware.request_log import AccessLog, RequestRecord, failure
from serving.middleware.settings import LogSettings
from serving.models.servable import GraphServable as Servable
from serving.server import Server
from tests.support.serving.running import running

PREDICT = "/v1/models/bert:predict"
SECRET = "my-diagnosis-is-secret"
WHO = ("entrypoint", "method", "model", "version", "signature", "rows", "code")


class Asked:
    """Server with version 4 of the toy and an access log."""

    def __init__(self, server: Server, log: Path):
        self.log = log
        self.client = Client(f"127.0.0.1:{server.grpc_port}")
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{server.rest_port}", trust_env=False, timeout=120)

    def lines(self, count: int) -> list[dict[str, Any]]:
        """All lines, once there are `count`: over REST, the answer arrives before its line."""
        for _ in range(6000):
            if len(self.log.read_text().splitlines()) >= count:
                break
            time.sleep(0.01)
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        assert len(lines) == count
        return lines


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]
) -> Iterator[Asked]:
    base = tmp_path_factory.mktemp("logged")
    push(base, 4, 4)
    logs = LogSettings(str(base / "access.jsonl"), log_requests=getattr(request, "param", False))
    with running(base, logs=logs) as server:
        asked = Asked(server, base / "access.jsonl")
        yield asked
        asked.client.close()
        asked.http.close()


@pytest.fixture
def asked(served: Asked) -> Asked:
    """The server, with a new log."""
    served.log.unlink()
    return served


def fail(call: Callable[[], object]) -> None:
    with pytest.raises(ClientError):
        call()


def test_one_line_per_request(asked: Asked) -> None:
    asked.client.predict({"text": ["a", "b"]}, "length")
    fail(lambda: asked.client.predict({"text": ["a"]}, "no such signature"))
    asked.client.status()
    asked.http.post(PREDICT, json={"instances": ["[MASK]"]})
    asked.http.post(PREDICT, content=b"{")
    asked.http.get("/v1/models/bert/metadata")
    asked.http.get("/v1/models/bert/versions/9")
    lines = asked.lines(7)
    assert [tuple(line[key] for key in WHO) for line in lines] == [
        ("GRPC", "Predict", "bert", 4, "length", 2, "OK"),
        ("GRPC", "Predict", "bert", 4, "", None, "INVALID_ARGUMENT"),
        ("GRPC", "GetModelStatus", "bert", None, "", None, "OK"),
        ("REST", "Predict", "bert", 4, "serving_default", 1, "OK"),
        ("REST", "Predict", "bert", None, "", None, "INVALID_ARGUMENT"),
        ("REST", "GetModelMetadata", "bert", 4, "serving_default", None, "OK"),
        ("REST", "GetModelStatus", "bert", None, "", None, "NOT_FOUND"),
    ]
    for line in lines:
        assert set(line) == {"time", "milliseconds", *WHO}
        assert 0 < line["milliseconds"] < 60_000 and line["time"].endswith("Z")


def test_no_log_contains_texts(asked: Asked, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are answered, refused with a message that quotes them, or fail with one."""
    caplog.set_level(logging.DEBUG, logger="serving")
    asked.client.predict({"text": [SECRET]}, "length")
    fail(lambda: asked.client.fill_mask([SECRET]))
    fail(lambda: asked.client.predict({SECRET: [SECRET]}))
    fail(lambda: asked.client.predict({"text": [SECRET]}, SECRET))
    quoted = asked.http.post(PREDICT, json={"inputs": {"whole": [SECRET]}, "signature_name": "numbers"})
    assert quoted.status_code == 400 and SECRET in quoted.text
    asked.http.post(PREDICT, content=f'{{"instances": ["{SECRET}"')
    asked.http.get(f"/v1/models/{SECRET}/versions/{SECRET}")

    def broken(*_: object) -> None:
        raise ValueError(f"cannot cope with {SECRET}")

    monkeypatch.setattr(Servable, "compute", broken)
    fail(lambda: asked.client.predict({"text": [SECRET]}, "length"))
    assert asked.http.post(PREDICT, json={"instances": [SECRET], "signature_name": "length"}).status_code == 500
    # A line of REST may come after that of a later call of gRPC.
    assert [line["code"] for line in asked.lines(9)].count("INTERNAL") == 2
    assert SECRET not in asked.log.read_text()
    assert "ValueError in test_logs.py" in caplog.text  # the failure is logged with its location
    assert SECRET not in caplog.text


@pytest.mark.parametrize("served", [True], indirect=True)
def test_log_requests_adds_the_texts(asked: Asked) -> None:
    asked.client.predict({"text": ["é", b"\xff"]}, "length")
    asked.client.predict({"real": np.array([[1, 2]], np.float32), "whole": np.array([7], np.int32)}, "numbers")
    assert [line["inputs"] for line in asked.lines(2)] == [
        {"text": ["é", "\\xff"]},
        {"real": [[1.0, 2.0]], "whole": [7]},
    ]


def test_a_rotated_log_is_reopened(asked: Asked, tmp_path: Path) -> None:
    asked.client.status()
    asked.log.rename(tmp_path / "yesterday.jsonl")
    asked.client.status()
    assert len(asked.lines(1)) == len((tmp_path / "yesterday.jsonl").read_text().splitlines())


def test_requests_succeed_if_the_log_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").mkdir()
    access = AccessLog(LogSettings(str(tmp_path / "logs" / "access.jsonl")))
    (tmp_path / "logs" / "access.jsonl").unlink()
    (tmp_path / "logs").rmdir()
    access(RequestRecord("Predict", "GRPC", "bert"))
    assert "access log: No such file" in caplog.text


def test_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    AccessLog(LogSettings("-"))(RequestRecord("Predict", "GRPC", "bert"))
    assert json.loads(capsys.readouterr().err)["model"] == "bert"


def test_invalid_log_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"access log .*nowhere/log: No such file"):
        AccessLog(LogSettings(str(tmp_path / "nowhere" / "log")))
    with pytest.raises(SettingsError, match="give its file"):
        AccessLog(LogSettings(log_requests=True))


def test_failure_contains_the_location_without_the_message() -> None:
    try:
        int(SECRET)
    except ValueError as error:
        assert failure(error).startswith("ValueError in test_logs.py:") and SECRET not in failure(error)


def test_the_time_of_an_answer_is_not_that_of_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    now, records = [0.0], list[RequestRecord]()
    monkeypatch.setattr(rest_calls, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        now[0] = 1.0
        await send({"type": "http.response.start", "status": 200})
        now[0] = 9.0
        await send({"type": "http.response.body"})

    async def send(message: Any) -> None: ...

    middleware = rest_calls.RestCalls(app, [records.append], lambda: ["bert"])
    asyncio.run(middleware({"type": "http", "path": "/v1/models/bert:predict"}, send, send))
    assert [(record.seconds, record.model) for record in records] == [(1.0, "bert")]
