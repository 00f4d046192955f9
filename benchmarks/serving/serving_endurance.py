"""Endurance tests of the embedded server: reloads under load, and minutes of load.

    BERT_DATA_DIR=../shared/data PYTHONPATH=$PWD .venv-bench/bin/python -m benchmarks.serving.serving_endurance reload
    ... -m benchmarks.serving.serving_endurance soak  # 12 minutes; reload takes 2

Each prints one JSON object. Both start `bert-tfx serve` on the loopback interface, over the model of
`bench_serving.py` (MiniLM's 6 layers of 384, one number per text; with `--model`, from its `--folder`, `.venv` is
enough). Their clients are threads of this process on the same cores: 2 are enough, and nothing else should run there.

    reload    clients in closed loops while new versions are renamed into place. Required: no failed answer, every
              answer from the version it names (each version's score is twice the previous one's), all versions seen.
    soak      finds the rate at saturation, then offers a share of it: requests arrive in a Poisson process, independent
              of earlier answers, and latency counts from the due time. Required: p99 at most 3 times p50, memory within
              5 % (last fifth over first fifth, after a tenth for warm-up), no error.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
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

from benchmarks.harness.child import ENVIRONMENT
from benchmarks.serving.serving_load import (
    TIMEOUT_SECONDS,
    Load,
    closed_loop,
    export,
    methods,
    percentile,
    request_of,
    sentences,
)

TEXTS, SATURATING_CLIENTS, SATURATION_SECONDS = 512, 64, 5.0
# Scores near 0 fit every version; others are within this tolerance of twice the previous version's.
LEAST_SCORE, TOLERANCE = 0.1, 0.01
START_SECONDS = 0.5
app = typer.Typer(add_completion=False)
Model = Annotated[Path | None, typer.Option(help="A folder that bench_serving.py kept; else one is exported.")]


# ---------------------------------------------------------------------- the server


def exported(model: Path | None, folder: Path) -> Path:
    """The SavedModel of `bench_serving.py`: `model`, or a new one exported into `folder`."""
    if model is None:
        (folder / "texts.json").write_text(json.dumps(sentences(TEXTS)[0]))
        export(folder)
    return (model or folder) / "saved_model" / "1"


def write_versions(source: Path, folder: Path, count: int) -> None:
    """Write `source` as the versions 1 to `count` in `folder`; each score is twice the previous version's."""
    import tensorflow as tf

    checkpoint = tf.train.load_checkpoint(str(source / "variables" / "variables"))
    values = {name: checkpoint.get_tensor(name) for name in checkpoint.get_variable_to_shape_map()}
    # Of the shape [hidden size, 1]; its bias is 0.
    (kernel,) = [name for name, value in values.items() if np.ndim(value) == 2 and value.shape[1] == 1]
    for number in range(1, count + 1):
        version = folder / str(number)
        shutil.copytree(source, version, ignore=shutil.ignore_patterns("variables"))
        (version / "variables").mkdir()
        names = list(values)
        tensors = [values[name] * 2.0 ** (number - 1) if name == kernel else values[name] for name in names]
        prefix = str(version / "variables" / "variables")
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors)


@contextlib.contextmanager
def served(base: Path) -> Iterator[tuple[str, int]]:
    """Run `bert-tfx serve` on the versions in `base`; yield its gRPC address and process id."""
    options = ["serve", "--model-dir", str(base), "--grpc-port", "0", "--rest-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from pipeline.cli import main; main()", *options],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,  # Linux shares the cores out by session
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"serving .* gRPC (\S+),", line)
        if found is None:
            raise RuntimeError(f"bert-tfx serve does not serve {base}: {line or process.wait()}")
        yield found[1], process.pid
    finally:
        process.kill()
        process.communicate()


Method = Callable[..., bytes]


def attempt(method: Method, request: bytes) -> tuple[str, bytes]:
    """The code of an answer, and the answer."""
    import grpc

    try:
        return "OK", method(request, timeout=TIMEOUT_SECONDS)
    except grpc.RpcError as error:
        return error.code().name, b""


def failed(codes: Sequence[str]) -> dict[str, int]:
    return {code: count for code, count in Counter(codes).items() if code != "OK"}


# ---------------------------------------------------------------------- reload


@app.command()
def reload(
    model: Model = None,
    clients: Annotated[int, typer.Option(help="Concurrent clients.")] = 16,
    seconds: Annotated[float, typer.Option(help="Seconds of load.")] = 60.0,
    changes: Annotated[int, typer.Option(help="New versions meanwhile.")] = 10,
) -> None:
    """Reload versions under load; count failed answers and answers that differ from the version they name."""
    from serving.protos import PredictResponse
    from serving.tensors import to_array

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        base, staged = folder / "serving", folder / "staged"
        # In a process of its own: TensorFlow stays out of the clients'.
        with futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(write_versions, exported(model, folder), staged, changes + 1).result()
        base.mkdir()
        (staged / "1").rename(base / "1")
        requests = [request_of(text) for text in sentences(TEXTS)[0]]
        taken: list[tuple[str, int, bool]] = []
        with served(base) as (address, _), methods(address, clients) as asked:
            load = Load(address, clients, requests)
            scores = [(request, score) for request, score in zip(requests, load.answers(), strict=True)]
            load.close()
            known = [pair for pair in scores if abs(pair[1]) >= LEAST_SCORE]

            def ask(method: Method, text: int) -> None:
                code, answer = attempt(method, known[text][0])
                response = PredictResponse.FromString(answer)
                version = response.model_spec.version.value
                score = to_array(response.outputs["score"])[0] if answer else np.nan
                wanted = known[text][1] * 2.0 ** (version - 1)
                taken.append((code, version, abs(score - wanted) > TOLERANCE * abs(wanted)))

            def change() -> None:
                for number in range(2, changes + 2):
                    time.sleep(seconds / (changes + 1))
                    (staged / str(number)).rename(base / str(number))

            changing = threading.Thread(target=change)
            changing.start()
            calls = [lambda text, method=method: ask(method, text) for method in asked]
            latencies, wall = closed_loop(calls, seconds, len(known))
            changing.join()
    answered = [version for code, version, _ in taken if code == "OK"]
    found = {
        "clients": clients,
        "seconds": wall,
        "answers": len(answered),
        "failed": failed([code for code, _, _ in taken]),
        "mixed": sum(is_mixed for code, _, is_mixed in taken if code == "OK"),
        "answers_by_version": dict(sorted(Counter(answered).items())),
        **{f"p{of}_ms": 1000 * percentile(latencies, of) for of in (50, 99)},
    }
    print(json.dumps(found, default=float))


# ---------------------------------------------------------------------- soak


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
            code, _ = attempt(method, requests[number % len(requests)])
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


@app.command()
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
        base = exported(model, Path(temporary)).parent
        with served(base) as (address, process):
            load = Load(address, SATURATING_CLIENTS, requests)
            load.run(SATURATION_SECONDS)  # warms up
            saturated = load.run(SATURATION_SECONDS)
            load.close()
            rate = saturated["requests"] / saturated["wall"]

            def watch() -> None:
                while not done.wait(window):
                    memory.append(resident_mb(process))

            watching = threading.Thread(target=watch)
            watching.start()
            taken = open_loop(address, requests, share * rate, seconds)
            done.set()
            watching.join()
    windows = []
    for number, resident in enumerate(memory):
        inside = [1000 * took for at, took, _ in taken if number <= at / window < number + 1]
        latency = {f"p{of}_ms": percentile(inside, of) for of in (50, 99)} if inside else {}
        windows.append({"second": window * (number + 1), "answers": len(inside), **latency, "resident_mb": resident})
    warmed = [took for at, took, _ in taken if at >= seconds / 10]
    p50, p99 = (1000 * percentile(warmed, of) for of in (50, 99))
    found = {
        "saturation_per_second": rate,
        "offered_per_second": share * rate,
        "answers": len(taken),
        "failed": failed([code for _, _, code in taken]),
        "p50_ms": p50,
        "p99_ms": p99,
        "p99_over_p50": p99 / p50,
        "memory_drift_percent": drift_percent(memory[len(memory) // 10 :]),
        "windows": windows,
    }
    print(json.dumps(found, default=float))


if __name__ == "__main__":
    app()
