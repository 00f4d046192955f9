"""Endurance test of the embedded server: minutes of load.

    BERT_DATA_DIR=DIR .venv/bin/python -m benchmarks.serving.serving_endurance  # 12 minutes

Starts the embedded server with TensorFlow's model of `bench_serving.py` (MiniLM's 6 layers of 384, one number per text)
in a process of its own, finds the rate at saturation, and offers a share of it: requests arrive in a Poisson process,
independent of earlier answers, and latency counts from the due time. Clients are threads of this process on the same
cores: 2 are enough, and nothing else should run there. Prints one JSON object.

Required: p99 at most 3 times p50, memory within 5 % (last fifth over first fifth, after a tenth for warm-up), no error.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.serving.child import Child
from benchmarks.serving.serving_backends import GRPC, TENSORFLOW
from benchmarks.serving.serving_load import TIMEOUT_SECONDS, Load, export, methods, percentile, request_of, sentences

TEXTS, SATURATING_CLIENTS, SATURATION_SECONDS = 512, 64, 5.0
START_SECONDS = 0.5
Model = Annotated[Path | None, typer.Option(help="A folder that bench_serving.py kept; else one is exported.")]


Method = Callable[..., bytes]


def attempt(method: Method, request: bytes) -> str:
    """Ask; return the code of the answer."""
    import grpc

    try:
        method(request, timeout=TIMEOUT_SECONDS)
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


def arrivals(rate: float, seed: int = 0) -> Iterator[float]:
    """Arrival times of requests, in seconds from 0: a Poisson process of `rate` per second."""
    draw = random.Random(seed)
    return itertools.accumulate(draw.expovariate(rate) for _ in itertools.count())


def open_loop(address: str, requests: Sequence[bytes], rate: float, seconds: float) -> list[tuple[float, float, str]]:
    """Offer `rate` requests per second; return due time, seconds until the answer, and code of each."""
    due = enumerate(itertools.takewhile(lambda at: at < seconds, arrivals(rate)))
    taken: list[tuple[float, float, str]] = []
    lock = threading.Lock()

    def ask(method: Method) -> None:
        while True:
            with lock:
                number, at = next(due, (None, 0.0))
            if number is None:
                return
            time.sleep(max(0.0, began + at - time.perf_counter()))
            code = attempt(method, requests[number % len(requests)])
            taken.append((at, time.perf_counter() - began - at, code))

    with methods(address, SATURATING_CLIENTS) as asked, futures.ThreadPoolExecutor(len(asked)) as pool:
        for method in asked:
            attempt(method, requests[0])  # connects
        began = time.perf_counter() + START_SECONDS
        list(pool.map(ask, asked))
    return taken


def drift_percent(values: Sequence[float]) -> float:
    """Difference, in per cent, of the means of the last and the first fifth."""
    fifth = max(1, len(values) // 5)
    return 100 * (float(np.mean(values[-fifth:])) / float(np.mean(values[:fifth])) - 1)


def resident_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(
    model: Model = None,
    seconds: Annotated[float, typer.Option(help="Seconds of load.")] = 600.0,
    share: Annotated[float, typer.Option(help="Of the rate at saturation.")] = 0.7,
    window: Annotated[float, typer.Option(help="Seconds between two looks.")] = 10.0,
) -> None:
    """Apply load for minutes; record latency and memory."""
    window = min(window, seconds / 10)
    requests = [request_of(text) for text in sentences(TEXTS)[0]]
    memory: list[float] = []
    done = threading.Event()
    with tempfile.TemporaryDirectory() as temporary:
        if model is None:
            (Path(temporary) / "texts.json").write_text(json.dumps(sentences(TEXTS)[0]))
            export(Path(temporary))
        cores = sorted(os.sched_getaffinity(0))
        server = Child("serving.serving_backends", TENSORFLOW, str(model or temporary), json.dumps(cores))
        try:
            address = f"127.0.0.1:{server.read()[GRPC]}"
            load = Load(address, SATURATING_CLIENTS, requests)
            load.run(SATURATION_SECONDS)  # warms up
            saturated = load.run(SATURATION_SECONDS)
            load.close()
            rate = saturated["requests"] / saturated["wall"]

            def watch() -> None:
                while not done.wait(window):
                    memory.append(resident_mb(server.pid))

            watching = threading.Thread(target=watch)
            watching.start()
            taken = open_loop(address, requests, share * rate, seconds)
            done.set()
            watching.join()
        finally:
            server.stop()
    warmed = [took for at, took, _ in taken if at >= seconds / 10]
    p50, p99 = (1000 * percentile(warmed, of) for of in (50, 99))
    figures = {
        "saturation_per_second": rate,
        "offered_per_second": share * rate,
        "answers": len(taken),
        "failed": Counter(code for _, _, code in taken if code != "OK"),
        "p50_ms": p50,
        "p99_ms": p99,
        "p99_over_p50": p99 / p50,
        "memory_drift_percent": drift_percent(memory[len(memory) // 10 :]),
        "resident_mb": memory,
    }
    print(json.dumps(figures, default=float))


if __name__ == "__main__":
    typer.run(soak)
