"""The clients of `bench_serving.py`, in a separate process: closed loops over gRPC or REST, and their latencies.

Each client has its own connection and always one request in flight. Requests are serialised beforehand, and answers are
parsed only for comparison, so that on shared cores the clients take little from the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import BinaryIO

from benchmarks.serving.child import ENVIRONMENT
from benchmarks.serving.serving_backends import GRPC, PATH, REST

# Time limit of the last requests after the end of the loop.
TIMEOUT_SECONDS = 60.0
PREDICT = "/tensorflow.serving.PredictionService/Predict"
MODEL = "bert"


def sentences(count: int, seed: int = 0) -> tuple[list[str], str]:
    """`count` texts of mixed length, shuffled, and their source.

    Half from GLUE's SST-2 (with phrases), half from MRPC (first sentences), in BERT_DATA_DIR; without it, generated.
    """
    rng = random.Random(seed)
    folder = os.environ.get("BERT_DATA_DIR")
    if folder is None:
        words = re.findall(r"\S+", "the a of time people nice walked quickly over mountains , unbelievable")
        return [" ".join(rng.choices(words, k=rng.randint(3, 40))) for _ in range(count)], "generated, 3 to 40 words"
    glue = Path(folder) / "glue"
    texts: list[str] = []
    for file, column in (("SST-2/train.tsv", 0), ("MRPC/msr_paraphrase_train.txt", 3)):
        lines = (glue / file).read_text(encoding="utf-8-sig").split("\n")[1:]
        column_of = [line.split("\t")[column].strip() for line in lines if line]
        texts += rng.sample(column_of, (count - len(texts)) // (1 if texts else 2))
    rng.shuffle(texts)
    return texts, "SST-2 and MRPC, halves"


def export(folder: Path) -> None:
    """Write the model of all backends, for the texts in FOLDER/texts.json, in a process of its own."""
    exporter = [sys.executable, "-m", "benchmarks.serving.serving_backends", "export", str(folder)]
    subprocess.run(exporter, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def methods(address: str, count: int) -> Iterator[list[Callable[..., bytes]]]:
    """Predict methods of `count` clients, one connection each."""
    import grpc

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(address, options)) for _ in range(count)]
        yield [channel.unary_unary(PREDICT) for channel in channels]


@contextlib.contextmanager
def posts(address: str, count: int) -> Iterator[list[Callable[..., bytes]]]:
    """The same over REST: functions that send a body and return the answer's, over one kept connection each."""
    host, port = address.split(":")

    def client(connection: socket.socket, answers: BinaryIO) -> Callable[..., bytes]:
        def post(body: bytes, timeout: float) -> bytes:
            head = f"POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            lines = list(iter(answers.readline, b"\r\n"))
            size = next(int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:"))
            answer = answers.read(size)
            if b" 200 " not in lines[0]:
                raise RuntimeError(f"{lines[0]!r}: {answer[:200]!r}")
            return answer

        return post

    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(count)]
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield [client(connection, stack.enter_context(connection.makefile("rb"))) for connection in connections]


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank: the smallest value not exceeded by at least `percent` of the values."""
    return sorted(values)[max(int(-(-len(values) * percent // 100)), 1) - 1]


def closed_loop(calls: Sequence[Callable[[int], object]], seconds: float, texts: int) -> tuple[list[float], float]:
    """Run every client in its own thread, one request at least, one after the other, until `seconds` are over.

    Args:
        calls: one per client, called with the number of a text; exceptions are raised again.
        seconds: no request but a client's first starts later.
        texts: number of texts; the clients start at different ones.

    Returns: seconds of every request; seconds from the start to the last answer.
    """
    start, end = threading.Barrier(len(calls) + 1), 0.0

    def client(number: int, call: Callable[[int], object]) -> list[float]:
        text, taken = number * texts // len(calls), []
        start.wait()
        began = time.perf_counter()
        while not (taken and began >= end):
            call(text % texts)
            taken.append((now := time.perf_counter()) - began)
            began, text = now, text + 1
        return taken

    with futures.ThreadPoolExecutor(len(calls)) as pool:
        clients = [pool.submit(client, *item) for item in enumerate(calls)]
        began = time.perf_counter()
        end = began + seconds
        start.wait()
    return [duration for client in clients for duration in client.result()], time.perf_counter() - began


class Load:
    """Clients of one server, over `GRPC` or `REST`."""

    def __init__(self, address: str, count: int, requests: Sequence[bytes], over: str = GRPC):
        self._connections = contextlib.ExitStack()
        clients = (posts if over == REST else methods)(address, count)
        self._requests, self._methods, self._over = requests, self._connections.enter_context(clients), over
        for method in self._methods:
            method(requests[0], timeout=TIMEOUT_SECONDS)

    def run(self, seconds: float) -> dict[str, float]:
        """One turn: requests per second, milliseconds of latency, the clients' CPU milliseconds per request."""
        calls = [lambda text, ask=ask: ask(self._requests[text], timeout=TIMEOUT_SECONDS) for ask in self._methods]
        cpu = time.process_time()
        latencies, wall = closed_loop(calls, seconds, len(self._requests))
        cpu = time.process_time() - cpu
        percentiles = {f"p{of}": 1000 * percentile(latencies, of) for of in (50, 95, 99)}
        return {"requests": len(latencies), "wall": wall, "client_cpu": cpu, **percentiles}

    def answers(self) -> list[float]:
        """The score of every text, with all clients at once."""
        from serving.protos import PredictResponse
        from serving.tensors import to_array

        scores = [0.0] * len(self._requests)

        def score(answer: bytes) -> float:
            if self._over == REST:
                return float(json.loads(answer)["outputs"][0])
            return float(to_array(PredictResponse.FromString(answer).outputs["score"])[0])

        def ask(client: int) -> None:
            for number in range(client, len(scores), len(self._methods)):
                scores[number] = score(self._methods[client](self._requests[number], timeout=TIMEOUT_SECONDS))

        with futures.ThreadPoolExecutor(len(self._methods)) as pool:
            list(pool.map(ask, range(len(self._methods))))
        return scores

    def close(self) -> None:
        self._connections.close()


def request_of(text: str) -> bytes:
    """A serialised PredictRequest."""
    from serving.protos import PredictRequest

    request = PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["text"].dtype = 7  # DT_STRING
    request.inputs["text"].tensor_shape.dim.add(size=1)
    request.inputs["text"].string_val.append(text.encode())
    return request.SerializeToString()


def main() -> None:
    """Answer lines of JSON: address, port, clients, seconds -> results of `Load.run`; without seconds, the scores."""
    os.sched_setaffinity(0, json.loads(sys.argv[2]))
    texts = json.loads(Path(sys.argv[1]).read_text())
    requests = {
        GRPC: [request_of(text) for text in texts],
        REST: [json.dumps({"inputs": [text]}).encode() for text in texts],
    }
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        address, over, clients, seconds = json.loads(line)
        load = Load(address, clients, requests[over], over)
        print(json.dumps(load.run(seconds) if seconds else load.answers()), flush=True)
        load.close()


if __name__ == "__main__":
    main()
