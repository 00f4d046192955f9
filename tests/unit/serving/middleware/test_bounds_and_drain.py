"""Overload, deadlines and cancellation, and requests during a shutdown."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

import serving.server
from serving.errors import ServingError
from serving.models.manager import Target
from serving.models.servable import GraphServable as Servable
from serving.scheduling.admission import QueueSettings
from serving.scheduling.batching_parameters import BatchingSettings
from serving.server import BATCHED, Server
from tests.support.serving.running import predict_request, wait_for

# Seconds for what takes milliseconds on an idle machine.
PATIENCE = 300.0


class Gate:
    """A check that holds requests until it is opened, and records them."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.arrived: list[Any] = []

    def __call__(self, what: Any) -> None:
        self.arrived.append(what)
        assert self.opened.wait(PATIENCE)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def started(pushed: Path, batching: BatchingSettings = BATCHED, **queue: Any) -> Server:
    queue = {"rest_timeout_seconds": PATIENCE, **queue}
    server = Server(pushed, grpc_port=0, rest_port=0, batching=batching, queue=QueueSettings(**queue))
    server.start()
    assert server.wait_until_available(120)
    return server


def over_grpc(server: Server) -> Any:
    channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
    return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict


LENGTH = predict_request("length", text=["abc"])


def over_rest(
    server: Server, inputs: Any = ("abc",), signature: str = "length", method: str = "predict"
) -> httpx.Response:
    return httpx.post(
        f"http://127.0.0.1:{server.rest_port}/v1/models/bert:{method}",
        json={"inputs" if method == "predict" else "examples": inputs, "signature_name": signature},
        trust_env=False,
        timeout=PATIENCE,
    )


def code_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def held_back(server: Server) -> Gate:
    """A gate at which requests wait to be computed."""
    servable, gate = server.models.get(Target("bert")), Gate()
    compute = servable.compute

    def held(name: str, inputs: Any) -> Any:
        gate(name)
        return compute(name, inputs)

    servable.compute = held  # type: ignore[method-assign]
    return gate


def inside(server: Server) -> int:
    """Number of admitted requests."""
    return server.inference._admission.inside


def test_requests_beyond_the_limit_are_refused_on_both_ports(pushed: Path, pool: ThreadPoolExecutor) -> None:
    server = started(pushed, max_requests=2)
    predict, gate = over_grpc(server), held_back(server)
    admitted = [pool.submit(predict, LENGTH, timeout=PATIENCE), pool.submit(over_rest, server)]
    wait_for(lambda: inside(server) == 2)
    assert code_of(lambda: predict(LENGTH, timeout=PATIENCE)) == "RESOURCE_EXHAUSTED"
    refused = over_rest(server)
    assert refused.status_code == 429 and "2 requests are running or queued already" in refused.json()["error"]
    # Requests that need no execution are answered.
    status = f"http://127.0.0.1:{server.rest_port}/v1/models/bert"
    assert httpx.get(status, trust_env=False, timeout=PATIENCE).status_code == 200
    gate.opened.set()
    assert admitted[0].result(PATIENCE).outputs["length"].int_val == [3]
    assert admitted[1].result(PATIENCE).json() == {"outputs": [3]}
    assert code_of(lambda: predict(LENGTH, timeout=PATIENCE)) == "OK"
    server.stop()


def test_probes_are_answered_while_requests_hold_all_threads(pushed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Kubernetes would restart a server for being busy."""
    server, gate = started(pushed, max_requests=1), Gate()
    threads = 17  # max_requests, and 16 that refuse

    def refuse(*_: Any, **__: Any) -> None:
        gate("any")
        raise ServingError(grpc.StatusCode.UNAVAILABLE, "held")

    for method in ("prepare", "on_examples"):
        monkeypatch.setattr(server.inference, method, refuse)
    rest = f"http://127.0.0.1:{server.rest_port}/v1/models"
    with ThreadPoolExecutor(threads) as pool, grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        held = [over_grpc(server).future(LENGTH, timeout=PATIENCE) for _ in range(threads)]
        posted = [pool.submit(over_rest, server, [{}], method="classify") for _ in range(threads)]
        wait_for(lambda: len(gate.arrived) == 2 * threads)
        try:
            check = health_pb2_grpc.HealthStub(channel).Check
            assert check(health_pb2.HealthCheckRequest(service="bert"), timeout=PATIENCE).status == 1  # SERVING
            for path in ("", "/bert", "/bert/metadata"):
                assert httpx.get(rest + path, trust_env=False, timeout=PATIENCE).status_code == 200
        finally:
            gate.opened.set()
            for one in (*held, *posted):
                one.exception(PATIENCE)
    server.stop()


@pytest.fixture(scope="module")
def one_by_one(pushed: Path) -> Iterator[Server]:
    """Server that computes one request at a time."""
    server = started(pushed, BatchingSettings(num_batch_threads=1), rest_timeout_seconds=0.3)
    yield server
    server.stop()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Holds the computation of a request of one turn until it is opened, and records the turns of all."""
    gate, compute = Gate(), Servable.compute

    def held(servable: Servable, name: str, inputs: Any) -> dict[str, np.ndarray]:
        turns = int(inputs["turns"])
        gate(turns) if turns == 1 else gate.arrived.append(turns)
        return compute(servable, name, inputs)

    monkeypatch.setattr(Servable, "compute", held)
    yield gate
    gate.opened.set()


def spin(turns: int) -> Any:
    return predict_request("spin", turns=np.int32(turns))


@pytest.mark.parametrize("how", ["deadline", "cancelled", "rest"])
def test_expired_or_cancelled_requests_are_not_computed(
    one_by_one: Server, held: Gate, pool: ThreadPoolExecutor, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict = over_grpc(one_by_one)
    arrived: list[int] = []
    monkeypatch.setattr(
        one_by_one.inference, "check", lambda servable, name, inputs: arrived.append(int(inputs["turns"]))
    )
    first = pool.submit(predict, spin(1), timeout=PATIENCE)
    wait_for(lambda: held.arrived == [1])
    for _ in range(30):
        if how == "rest":
            answer = over_rest(one_by_one, 7, "spin")
            assert answer.status_code == 504 and "deadline" in answer.json()["error"]
        else:
            waiting = predict.future(spin(7), timeout=0.3 if how == "deadline" else PATIENCE)
            if how == "cancelled":
                wait_for(lambda: one_by_one.inference.waiting == 1)
                waiting.cancel()
            assert waiting.exception(PATIENCE) is not None if how == "deadline" else waiting.cancelled()
        if 7 in arrived:  # else its time was over before, on a busy machine
            break
    wait_for(lambda: one_by_one.inference.waiting == 0)
    assert not first.done()
    held.opened.set()
    first.result(PATIENCE)
    predict(spin(8), timeout=PATIENCE)
    assert (sorted(set(arrived)), held.arrived) == ([1, 7, 8], [1, 8])


def test_rows_wait_instead_of_being_refused(one_by_one: Server) -> None:
    full = predict_request("company", text=["abc"] * 32)
    calls = [over_grpc(one_by_one).future(full, timeout=PATIENCE) for _ in range(200)]
    assert {tuple(call.result().outputs["rows"].int_val) for call in calls} == {(32,) * 32}


def test_a_shutdown_that_cuts_requests_off_says_so(
    pushed: Path, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.server, "_CLOSE_SECONDS", 0.1)
    server = started(pushed, drain_seconds=0.1)
    gate = Gate()
    server.inference.check = lambda servable, name, inputs: gate(name)  # type: ignore[method-assign]
    pool.submit(over_grpc(server), LENGTH)
    wait_for(lambda: gate.arrived)
    server.stop()
    gate.opened.set()
    assert "stopped after 0.1 s: 1 admitted requests were not answered" in caplog.text


def test_drain(pushed: Path, pool: ThreadPoolExecutor) -> None:
    """NOT_SERVING comes first; then new requests are refused, and those in flight finish in the given time."""
    server = started(pushed, drain_seconds=PATIENCE)
    predict, gate = over_grpc(server), held_back(server)
    during: list[str] = []
    # Health changes first: requests are still answered.
    drain = server.health.enter_graceful_shutdown

    def drained() -> None:
        drain()
        during.append(code_of(lambda: predict(predict_request("nothing"), timeout=PATIENCE)))

    server.health.enter_graceful_shutdown = drained  # type: ignore[method-assign]
    under_way = [pool.submit(predict, LENGTH, timeout=PATIENCE), pool.submit(over_rest, server)]
    wait_for(lambda: inside(server) == 2)
    stopping = pool.submit(server.stop)
    # The signature does not exist: until then the request fails for this reason, without reaching the gate.
    wait_for(lambda: code_of(lambda: predict(predict_request("nothing"), timeout=PATIENCE)) == "UNAVAILABLE")
    assert over_rest(server).status_code == 503
    assert during == ["INVALID_ARGUMENT"] and not stopping.done()
    gate.opened.set()
    assert under_way[0].result(PATIENCE).outputs["length"].int_val == [3]
    assert under_way[1].result(PATIENCE).json() == {"outputs": [3]}
    stopping.result(PATIENCE)


def test_no_client_sees_cancelled_during_a_shutdown(pushed: Path, pool: ThreadPoolExecutor) -> None:
    """CANCELLED means that the client cancelled, so clients do not retry."""
    server = started(pushed)
    stopped = threading.Event()
    over = {"gRPC": set[str](), "REST": set[str]()}

    def ask_grpc() -> None:
        predict = over_grpc(server)
        while not stopped.is_set():
            over["gRPC"].add(code_of(lambda: predict(LENGTH, timeout=PATIENCE)))

    def ask_rest() -> None:
        while not stopped.is_set():
            try:
                over["REST"].add(str(over_rest(server).status_code))
            except httpx.TransportError:
                over["REST"].add("no connection")

    asking = [pool.submit(ask) for ask in (*[ask_grpc] * 6, ask_rest)]
    wait_for(lambda: over == {"gRPC": {"OK"}, "REST": {"200"}})
    server.stop()
    wait_for(lambda: "UNAVAILABLE" in over["gRPC"])
    stopped.set()
    for one in asking:
        one.result(PATIENCE)
    assert over["gRPC"] == {"OK", "UNAVAILABLE"}
    assert over["REST"] <= {"200", "503", "no connection"}
