"""Figures of a server under load that are too slow for every run: `-m slow -s` prints them."""

import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from serving.api import inference, json_tensors
from serving.middleware.settings import LimitSettings
from serving.scheduling.admission import QueueSettings
from tests.support.serving.running import predict_request, wait_for

pytestmark = pytest.mark.slow
PREDICT = "/tensorflow.serving.PredictionService/Predict"
PATIENCE = 300.0
LIMITS = LimitSettings(max_answer_bytes=2**28)


@pytest.fixture
def process(tmp_path: Path, toy: Callable[..., Path], in_process: Callable[..., Any]) -> Any:
    shutil.copytree(toy(1), tmp_path / "1")
    # Of the toy's `sequence`, twice as much is reserved as its answer takes as JSON.
    return in_process(tmp_path, limits=LIMITS, queue=QueueSettings(drain_seconds=PATIENCE))


def cpu_seconds(process: Any) -> float:
    fields = Path(f"/proc/{process._process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # ticks


def calls(process: Any, requests: list[Any], seconds: float) -> list[Any]:
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(f"127.0.0.1:{process.grpc_port}", options)
    predict = channel.unary_unary(PREDICT)
    return [predict.future(request.SerializeToString(), timeout=seconds) for request in requests]


def test_200_requests_of_32_rows_are_answered(process: Any) -> None:
    full = predict_request("company", text=["abc"] * 32)
    began = time.monotonic()
    codes = [call.code() for call in calls(process, [full] * 200, PATIENCE)]
    refused = sum(code is not grpc.StatusCode.OK for code in codes)
    print(f"refused: {refused} of 200, in {time.monotonic() - began:.1f} s")
    assert not refused


def test_requests_of_60_clients_that_left_take_no_more_than_the_calls_under_way(process: Any) -> None:
    turns = predict_request("spin", turns=np.int32(300_000))
    before = cpu_seconds(process)
    calls(process, [turns], PATIENCE)[0].result()
    alone = cpu_seconds(process) - before
    asked = calls(process, [turns] * 60, PATIENCE)
    time.sleep(alone / 2)  # the first are computed
    for call in asked:
        call.cancel()
    time.sleep(0.1)
    before, patience = cpu_seconds(process), time.monotonic() + 20 * alone
    while time.monotonic() < patience:
        time.sleep(0.1)
    after, threads = cpu_seconds(process) - before, len(os.sched_getaffinity(0))
    print(f"a call: {alone:.2f} s of CPU; after 60 clients have gone: {after:.2f} s, with {threads} calls under way")
    assert after < 1.3 * threads * alone + 0.5


def test_a_reader_of_a_megabyte_a_second_gets_22_megabytes_while_the_server_drains(process: Any) -> None:
    rows = 1570
    body = json.dumps({"inputs": ["a " * 500] * rows, "signature_name": "sequence"}).encode()
    head = f"POST {process.PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", process.rest_port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body)
        answer, began = connection.recv(65536), time.monotonic()
        process._process.send_signal(signal.SIGTERM)
        size = answer.index(b"\r\n\r\n") + 4 + int(re.search(rb"(?i)content-length: (\d+)", answer)[1])  # type: ignore[index]
        while len(answer) < size:
            time.sleep(max(0.0, len(answer) / 1e6 - (time.monotonic() - began)))
            piece = connection.recv(65536)
            assert piece, f"cut off after {len(answer)} of {size} bytes"
            answer += piece
    took = time.monotonic() - began
    outputs = json.loads(answer.partition(b"\r\n\r\n")[2])["outputs"]
    print(f"{size / 1e6:.1f} MB in {took:.1f} s, after SIGTERM; exit code {process._process.wait(PATIENCE)}")
    assert np.shape(outputs["sequence_output"]) == (rows, 500, 2)


@pytest.mark.parametrize("over", ["gRPC", "REST"])
def test_memory_of_eight_large_answers_is_within_the_budget(process: Any, over: str) -> None:
    rows, growth, word_bytes = (4000, 1, 8) if over == "gRPC" else (1400, json_tensors.GROWTH, 8 + 64)
    text = ["a " * 500] * rows
    request = predict_request("sequence", text=text)
    request.output_filter.append("sequence_output")
    body = json.dumps({"inputs": text, "signature_name": "sequence"}).encode()
    process.forget_peak()
    before = process.memory_mb()

    def ask(_: int) -> Any:
        if over == "gRPC":
            (call,) = calls(process, [request], PATIENCE)
            return call.code(), len(call.result()) if call.code() is grpc.StatusCode.OK else call.details()
        answer = httpx.post(
            f"http://127.0.0.1:{process.rest_port}{process.PATH}", content=body, timeout=PATIENCE, trust_env=False
        )
        return answer.status_code, len(answer.content)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    grown = process.memory_mb("VmHWM") - before
    bound = (growth + inference._COPIES) * 512 * word_bytes + inference._INPUT_COPIES * len(text[0])
    reserved = 8 * rows * bound / 2**20
    print(f"{over}: {answers}; peak {grown:.0f} MiB above {before:.0f}; reserved {reserved:.0f} MiB")
    assert grown < reserved and {code for code, _ in answers} <= {grpc.StatusCode.OK, 200}


def test_nothing_is_left_of_a_thousand_heads_of_random_bytes(process: Any) -> None:
    rng, lines = np.random.default_rng(5), [b"POST /v1/models/bert:predict HTTP/1.1", b"Host: a", b"Content-Length: 9"]
    descriptors, codes = process.descriptors, set()
    for number in range(1000):
        head = bytearray(b"\r\n".join(lines) + b"\r\n\r\n")
        for place in rng.integers(0, len(head), rng.integers(1, 9)):
            head[place] = rng.integers(0, 256)
        with socket.create_connection(("127.0.0.1", process.rest_port), timeout=PATIENCE) as connection:
            connection.sendall(bytes(head) + b"{}       ")
            if number % 2:
                connection.shutdown(socket.SHUT_WR)
                codes.add(connection.recv(65536)[9:12])
    print(f"status of heads of random bytes: {codes}")
    assert b"400" in codes and not any(code.startswith(b"5") for code in codes - {b"501"})
    wait_for(lambda: process.descriptors <= descriptors + 5)
    process.ask()
