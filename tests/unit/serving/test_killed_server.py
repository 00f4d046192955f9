"""Errors that clients get from a server that is killed under load, and from one that has just started."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from serving.client import Client, ClientError
from serving.errors import ServingError
from serving.models.config import ModelConfig
from serving.models.manager import ModelManager, Target
from serving.protos import PredictionServiceStub
from tests.support.serving.running import predict_request, wait_for


def asking(process: Any, done: threading.Event, outcomes: Counter[str]) -> Callable[[], None]:
    """Client of both ports that keeps sending requests until `done`, whatever it gets."""
    request = predict_request("length", text=["abc"])
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200)]

    def ask_on() -> None:
        address = f"127.0.0.1:{process.grpc_port}"
        with grpc.insecure_channel(address, options) as channel, process.rest() as http:
            predict = PredictionServiceStub(channel).Predict
            while not done.wait(0.02):
                try:
                    outcomes[f"OK {predict(request, timeout=120).outputs['length'].int_val}"] += 1
                except grpc.RpcError as error:
                    outcomes[error.code().name] += 1
                try:
                    answer = http.post(process.PATH, content=process.LENGTH)
                    outcomes[f"{answer.status_code} {answer.json().get('outputs')}"] += 1
                except (httpx.NetworkError, httpx.RemoteProtocolError):
                    outcomes["no connection"] += 1

    return ask_on


def test_kill_and_restart_under_load(
    tmp_path: Path, push: Callable[[Path, int, int], Path], in_process: Callable[..., Any]
) -> None:
    """Kill it under load: clients get an answer, or the error that the server is not there."""
    push(tmp_path, 1, 1)
    process = in_process(tmp_path)
    outcomes, done = Counter[str](), threading.Event()
    clients = [threading.Thread(target=asking(process, done, outcomes)) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        wait_for(lambda: outcomes["OK [3]"])
        process.kill()
        process.start()
        process.ask()  # at once
    finally:
        done.set()
        for client in clients:
            client.join()
    refused = {"UNAVAILABLE", "no connection"}
    assert refused | {"OK [3]", "200 [3]"} <= set(outcomes) <= refused | {"OK [3]", "200 [3]", "503 None"}, outcomes


def test_requests_during_the_first_load_are_unavailable(tmp_path: Path) -> None:
    """NOT_FOUND, after which clients do not retry, is only returned once the versions have been looked for."""
    models = ModelManager([ModelConfig("bert", tmp_path)])
    unavailable, not_found = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND
    for code, message in ((unavailable, "still loading: ask again"), (not_found, "nothing yet")):
        with pytest.raises(ServingError, match=f"Servable not found for request: Latest.bert.; .*{message}$") as raised:
            models.get(Target("bert"))
        assert raised.value.code is code
        models.stores["bert"].poll()


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ("Servable not found for request: Latest(bert); bert is still loading: ask again", "still loading"),
        ("the server is stopping: ask another one", "is stopping"),
        ("failed to connect to all addresses", "no server reachable at"),
        (None, "no server reachable at"),
    ],
)
def test_the_client_keeps_the_message_of_an_unavailable_server(details: str | None, message: str) -> None:
    class Refused(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNAVAILABLE

        def details(self) -> str | None:
            return details

    def refuse(*_: Any, **__: Any) -> None:
        raise Refused

    with Client("127.0.0.1:1") as client, pytest.raises(ClientError, match=message):
        client._call(refuse, None)
