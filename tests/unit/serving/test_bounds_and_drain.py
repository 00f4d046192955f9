"""What a server does with more than it can do, with who no longer waits, and with who comes while it stops."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.request_queue import Call, QueueSettings
from serving.servable import Work
from serving.server import Server

Push = Callable[[Path, int, int], Path]


class Gate:
    """A check that lets no request on before it is opened; it says which ones came."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.arrived: list[str] = []

    def __call__(self, signature_name: str) -> None:
        self.arrived.append(signature_name)
        assert self.opened.wait(60)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, push: Push) -> Path:
    base = tmp_path_factory.mktemp("bounded")
    push(base, 1, 1)
    return base


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def started(base: Path, **queue: Any) -> Server:
    server = Server(base, grpc_port=0, rest_port=0, queue=QueueSettings(**queue))
    server.start()
    assert server.wait_until_available(60)
    return server


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def over_grpc(server: Server) -> Any:
    channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
    return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict


def request(signature: str, **inputs: Any) -> predict_pb2.PredictRequest:
    made = predict_pb2.PredictRequest(model_spec={"name": "bert", "signature_name": signature})
    for name, value in inputs.items():
        made.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return made


LENGTH = request("length", text=["abc"])


def over_rest(server: Server, inputs: Any = ("abc",), signature: str = "length") -> httpx.Response:
    return httpx.post(
        f"http://127.0.0.1:{server.rest_port}/v1/models/bert:predict",
        json={"inputs": inputs, "signature_name": signature},
        trust_env=False,
        timeout=60,
    )


def code_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def hold_back(server: Server, gate: Gate) -> None:
    """Requests that are checked wait at the gate, before they take their turn."""
    check = server.guard.check

    def held(servable: Any, signature_name: str, inputs: Any) -> None:
        check(servable, signature_name, inputs)
        gate(signature_name)

    server.guard.check = held  # type: ignore[method-assign]


def test_one_request_too_many_is_refused_at_once_on_both_ports(base: Path, pool: ThreadPoolExecutor) -> None:
    server, gate = started(base, max_requests=2), Gate()
    predict = over_grpc(server)
    hold_back(server, gate)
    inside = [pool.submit(predict, LENGTH, timeout=60), pool.submit(over_rest, server)]
    wait_for(lambda: len(gate.arrived) == 2)
    assert code_of(lambda: predict(LENGTH, timeout=60)) == "RESOURCE_EXHAUSTED"
    refused = over_rest(server)
    assert refused.status_code == 429 and "2 requests compute or wait already" in refused.json()["error"]
    # What is no request for an answer is answered.
    assert httpx.get(f"http://127.0.0.1:{server.rest_port}/v1/models/bert", trust_env=False).status_code == 200
    gate.opened.set()
    assert inside[0].result(60).outputs["length"].int_val == [3]
    assert inside[1].result(60).json() == {"outputs": [3]}
    assert code_of(lambda: predict(LENGTH, timeout=60)) == "OK"
    server.stop()


@pytest.fixture(scope="module")
def slow(base: Path) -> Iterator[Server]:
    """One request outside of batches at a time."""
    server = started(base, max_running=1, rest_timeout_seconds=0.5)
    yield server
    server.stop()


def turns_that_take(server: Server, seconds: float) -> np.int32:
    """How many turns `spin` needs for so long, here and now."""
    spin, turns = over_grpc(server), 1000
    spin(request("spin", turns=np.int32(turns)), timeout=60)  # the first call builds the executable
    while True:
        began = time.monotonic()
        spin(request("spin", turns=np.int32(turns)), timeout=60)
        took = time.monotonic() - began
        if took > 0.2:
            return np.int32(turns * seconds / took)
        turns *= 4


@pytest.mark.parametrize("how", ["deadline", "cancelled", "rest"])
def test_who_no_longer_waits_is_not_computed(
    slow: Server, pool: ThreadPoolExecutor, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict = over_grpc(slow)
    turns = int(turns_that_take(slow, 4))
    computed: list[int] = []
    run = Work.run

    def counted(work: Work) -> dict[str, np.ndarray]:
        computed.append(int(work.inputs["turns"]))
        return run(work)

    monkeypatch.setattr(Work, "run", counted)
    arrived: list[int] = []
    monkeypatch.setattr(slow.guard, "check", lambda servable, name, inputs: arrived.append(int(inputs["turns"])))
    first = pool.submit(predict, request("spin", turns=np.int32(turns)), timeout=60)
    wait_for(lambda: computed == [turns])
    if how == "rest":
        answer = over_rest(slow, 7, "spin")
        assert answer.status_code == 504 and "deadline" in answer.json()["error"]
    else:
        waiting = predict.future(request("spin", turns=np.int32(7)), timeout=1 if how == "deadline" else 60)
        if how == "cancelled":
            wait_for(lambda: slow.inference.waiting == 1)
            waiting.cancel()
        assert waiting.exception(60) is not None if how == "deadline" else waiting.cancelled()
    wait_for(lambda: slow.inference.waiting == 0)
    assert not first.done(), "the first request was too short to be waited for"
    first.result(60)
    predict(request("spin", turns=np.int32(8)), timeout=60)
    assert (arrived, computed) == ([turns, 7, 8], [turns, 8])


def test_a_rest_client_that_goes_away_is_not_computed(
    slow: Server, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.rest_service.Call", lambda seconds: Call(60))
    predict = over_grpc(slow)
    turns = turns_that_take(slow, 3)
    first = pool.submit(predict, request("spin", turns=turns), timeout=60)
    wait_for(lambda: slow.inference._alone._free == 0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"http://127.0.0.1:{slow.rest_port}/v1/models/bert:predict",
            json={"inputs": 7, "signature_name": "spin"},
            trust_env=False,
            timeout=0.3,
        )
    wait_for(lambda: slow.inference.waiting == 0)
    assert not first.done()
    first.result(60)


@pytest.mark.parametrize("patient", [True, False])
def test_drain(base: Path, pool: ThreadPoolExecutor, patient: bool) -> None:
    """Not serving first, then new requests are refused, and those under way finish, in the time they are given."""
    server, gate = started(base, drain_seconds=60.0 if patient else 0.2), Gate()
    predict = over_grpc(server)
    hold_back(server, gate)
    during: list[str] = []
    # Health goes first: requests are still answered.
    drain = server.guard.health.drain

    def drained() -> None:
        drain()
        during.append(code_of(lambda: predict(request("nothing"), timeout=60)))

    server.guard.health.drain = drained  # type: ignore[method-assign]
    under_way = [pool.submit(predict, LENGTH, timeout=60), pool.submit(over_rest, server)]
    wait_for(lambda: len(gate.arrived) == 2)
    stopping = pool.submit(server.stop)
    if not patient:
        stopping.result(30)
        gate.opened.set()
        return
    # It has no such signature: until then it is refused for that, and does not come to the gate.
    wait_for(lambda: code_of(lambda: predict(request("nothing"), timeout=60)) == "UNAVAILABLE")
    assert over_rest(server).status_code == 503
    assert during == ["INVALID_ARGUMENT"] and not stopping.done()
    gate.opened.set()
    assert under_way[0].result(60).outputs["length"].int_val == [3]
    assert under_way[1].result(60).json() == {"outputs": [3]}
    stopping.result(30)
