"""Ports, start and stop, and a server that is killed under load."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from serving.client import Client, ClientError
from serving.middleware.settings import SecuritySettings
from serving.protos import PredictionServiceStub
from serving.server import CannotListen, Server
from tests.support.processes import free_ports
from tests.support.serving.running import predict_request, running, wait_for

Push = Callable[[Path, int, int], Path]
ROOT = Path(__file__).parents[3]
OPEN = SecuritySettings(allow_insecure=True)


def test_a_taken_port_is_reported_in_one_line(server: Server, tmp_path: Path) -> None:
    for grpc_port, rest_port in ((server.grpc_port, 0), (0, server.rest_port)):
        message = f"^cannot listen on 127.0.0.1:{grpc_port or rest_port}: is another server running.*$"
        with pytest.raises(CannotListen, match=message):
            Server(tmp_path, grpc_port=grpc_port, rest_port=rest_port)


@pytest.mark.parametrize(("host", "shown"), [("::1", "[::1]"), ("[::1]", "[::1]"), ("::", "[::]"), ("[::]", "[::]")])
def test_ipv6(tmp_path: Path, host: str, shown: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with Server(tmp_path, grpc_port=0, rest_port=0, host=host, security=OPEN) as server:
        assert server.host == shown
        for address in ("[::1]", "127.0.0.1") if shown == "[::]" else ("[::1]",):
            url = f"http://{address}:{server.rest_port}/v1/models"
            assert httpx.get(url, trust_env=False, timeout=60).status_code == 200
            with grpc.insecure_channel(f"{address}:{server.grpc_port}", [("grpc.enable_http_proxy", 0)]) as channel:
                grpc.channel_ready_future(channel).result(60)


def test_a_host_that_is_not_here_is_the_reason(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match=r"^cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"):
        Server(tmp_path, grpc_port=0, rest_port=0, host="192.0.2.1", security=OPEN)


def test_stop_frees_both_ports(tmp_path: Path) -> None:
    grpc_port, rest_port = free_ports(2)
    first = Server(tmp_path, grpc_port=grpc_port, rest_port=rest_port)
    first.start()
    first.stop()
    again = Server(tmp_path, grpc_port=grpc_port, rest_port=rest_port)
    again.start()
    again.stop()
    with (
        pytest.raises(ClientError, match="is `bert-tfx serve` running"),
        Client(f"127.0.0.1:{first.grpc_port}") as client,
    ):
        client.status()


def test_another_model_name(tmp_path: Path, push: Push) -> None:
    push(tmp_path, 12, 1)
    with (
        running(tmp_path, model_name="sst2") as server,
        Client(f"127.0.0.1:{server.grpc_port}", model="sst2") as client,
    ):
        assert [(status.version, status.state) for status in client.status()] == [(12, "AVAILABLE")]


def test_the_process_reports_serving_and_stops_on_sigterm(tmp_path: Path, push: Push) -> None:
    """The process of `bert-tfx serve`: waits, serves, takes a new version, stops cleanly."""
    options = f"{str(tmp_path)!r}, grpc_port=0, rest_port=0, poll_seconds=0.1, queue=QueueSettings(drain_seconds=300.0)"
    # Like `bert-tfx`, which keeps the libraries' messages from the terminal.
    quiet = "import logging; logging.getLogger().addHandler(logging.NullHandler())"
    imports = "from serving.server import serve; from serving.scheduling.admission import QueueSettings"
    command = f"{quiet}; {imports}; serve({options})"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("waiting for a first version")
        push(tmp_path, 1, 1)
        line = process.stdout.readline()
        match = re.fullmatch(
            rf"serving bert version 1 from {tmp_path}: gRPC 127.0.0.1:(\d+), REST http://127.0.0.1:(\d+)\n",
            line,
        )
        assert match, line
        push(tmp_path, 2, 2)
        assert process.stdout.readline().startswith("serving bert version 2 from ")
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "saved_model.pb").write_bytes(b"no model")
        (tmp_path / "broken").rename(tmp_path / "3")
        assert any(" ERROR bert version 3 in " in line for line in process.stderr)
        with Client(f"127.0.0.1:{match[1]}") as client:
            assert client.fill_mask(["[MASK]"])[0][0][0][0] == "0a"
            # An idle connection must not delay the shutdown.
            with socket.create_connection(("127.0.0.1", int(match[2]))):
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=120) == 0  # with it, drain_seconds: 300
            # Of gRPC, whose sockets are closed in order, nothing.
            assert process.stderr.read().splitlines()[-1] == "stopping"
    finally:
        process.kill()
        process.wait()


def test_a_version_is_served_without_all_of_tensorflow_and_without_distutils(pushed: Path) -> None:
    """A thread that imported distutils once waited for another's import forever.

    TensorFlow can be imported later, and takes the messages that are imported for its own.
    """
    program = (
        "import sys; from serving.client import Client; from serving.server import Server\n"
        "with Server(sys.argv[1], grpc_port=0, rest_port=0) as server:\n"
        "    server.wait_until_available(60)\n"
        "    with Client(f'127.0.0.1:{server.grpc_port}') as client:\n"
        "        print(client.predict({'text': ['abc']}, 'length'))\n"
        "print(sorted({'distutils', 'keras', 'tensorflow', 'websockets'} & set(sys.modules)))\n"
        "import tensorflow as tf; from serving.protos import TensorProto\n"
        "print(tf.make_tensor_proto(1).__class__ is TensorProto, int(tf.constant(1) + 1))"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(pushed)], capture_output=True, text=True, timeout=120)
    assert ran.stdout.splitlines() == ["{'length': array([3], dtype=int32)}", "[]", "True 2"], ran.stderr


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
