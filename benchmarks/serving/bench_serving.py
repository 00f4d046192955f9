"""Benchmark of serving a BERT of MiniLM's size from raw text, with and without a server.

    BERT_DATA_DIR=DIR .venv/bin/python -m benchmarks.serving.bench_serving  # 20 minutes
    ... -m benchmarks.serving.bench_serving --rounds 1 --seconds 1 --clients 1 --clients 16  # 4 minutes

One model (6 layers of 384, one number per text) in each backend (`serving_backends.py`), in a separate process on the
same cores, behind gRPC on the loopback interface; real sentences of mixed length, one per request; 1 to 64 clients, in
closed loops, in one process (`serving_load.py`) on the other cores, if any. All backends first answer all texts,
with 16 clients at once: scores must equal the raw model's to 1e-3 (differences of bfloat16 and int8 are printed).

    raw                  the SavedModel called in a loop: one text at a time, and in batches of up to 32 from the
                         server's length buckets, which is an upper bound for batching
    bert-tfx             the embedded server of `bert-tfx serve`; also without batching, with bfloat16 products, and
                         with ONNX Runtime as its engine, in float32 and in int8

The floor of a text is its matrix products (`bert_keras.training.flops`, no padding) at the rate of a large one, which
is measured in each round; the share is the floor's part of the server's CPU seconds per request. Backends take turns;
figures are medians over the rounds, ratios are between turns of one round: median [minimum - maximum]. CPU is the
kernel's count for all threads of the process, which is comparable on a busy machine.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.serving.child import Child
from benchmarks.serving.serving_backends import BFLOAT16, OURS, OURS_INT8, RAW, SERVED, UNBATCHED
from benchmarks.serving.serving_load import export, sentences

TEXTS, COMPARING_CLIENTS, TOLERANCE = 512, 16, 1e-3
ALONE, BATCHES, MATMUL = "alone", "batches", "matmul"
RAW_BATCHES = f"{RAW}, {BATCHES}"
BATCHED_CLIENTS = 16

# (backend, clients) -> one turn per round; 0 clients for the raw model's loops.
Turns = Mapping[tuple[str, int], Sequence[Mapping[str, float]]]


Served = tuple[Child, str]  # and its gRPC address


class Aim(NamedTuple):
    """A target and its measured values, one per round; `is_most`: whether `bound` is an upper bound, else a lower."""

    what: str
    values: Sequence[float]
    bound: float
    is_most: bool = False

    @property
    def is_met(self) -> bool:
        """Compare the median with the bound."""
        value = statistics.median(self.values)
        return value <= self.bound if self.is_most else value >= self.bound


def aims(turns: Turns) -> list[Aim]:
    """The targets for the measured backends."""
    most_clients = max((clients for _, clients in turns), default=0)
    ratios = (
        ("overhead over raw batches: CPU seconds a request", _cpu, (OURS, most_clients), (RAW_BATCHES, 0), 1.15, True),
        ("overhead over raw batches: seconds a request", _wall, (OURS, most_clients), (RAW_BATCHES, 0), 1.15, True),
        ("batching over none: requests/s", _wall, (UNBATCHED, BATCHED_CLIENTS), (OURS, BATCHED_CLIENTS), 2.0, False),
    )
    return [
        Aim(f"{what}, {most_clients if is_most else BATCHED_CLIENTS} clients",
            [kind(a) / kind(b) for a, b in zip(turns[above], turns[below], strict=True)], bound, is_most)
        for what, kind, above, below, bound, is_most in ratios
        if above in turns and below in turns
    ]  # fmt: skip


def _wall(turn: Mapping[str, float]) -> float:
    return turn["wall"] / turn["requests"]


def _cpu(turn: Mapping[str, float]) -> float:
    return turn["cpu"] / turn["requests"]


def measure(
    raw: Child, load: Child, backends: Mapping[str, Served], clients: Sequence[int], rounds: int, seconds: float
) -> dict[tuple[str, int], list[dict[str, float]]]:
    """Measure all backends in every round; each round starts with another one."""
    turns: dict[tuple[str, int], list[dict[str, float]]] = {}
    for number in range(rounds):
        for kind in (MATMUL, ALONE, BATCHES):
            turns.setdefault((f"{RAW}, {kind}", 0), []).append(raw.ask(kind, seconds))
        for count in clients:
            names = list(backends)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                process, address = backends[name]
                before = process.ask("cpu")
                turn = load.ask(address, count, seconds)
                turns.setdefault((name, count), []).append(turn | {"cpu": process.ask("cpu") - before})
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return turns


def report(turns: Turns, about: Mapping[str, Any]) -> str:
    """The tables, in Markdown."""

    def median(key: tuple[str, int], of: Callable[[Mapping[str, float]], float]) -> float:
        return statistics.median(map(of, turns[key]))

    rate = median((f"{RAW}, {MATMUL}", 0), lambda turn: turn["flops"] / turn["cpu"])
    floor = about["flops"] / rate
    lines = [
        f"{about['texts']}; {about['tokens']:.1f} pieces a text; cores {about['cores']} for the backends and "
        f"{about['client_cores']} for the clients; {about['rounds']} rounds of {about['seconds']:g} s.",
        f"Floor: {1000 * floor:.2f} ms CPU a text, at {rate / 1e9:.0f} GFLOP/s a CPU second.",
        "",
        "| clients | backend | requests/s | p50 ms | p95 | p99 | CPU ms/request | its clients' | share of the floor |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, clients in sorted(turns, key=lambda key: key[1]):
        if name == f"{RAW}, {MATMUL}":
            continue
        key = name, clients
        cpu = median(key, _cpu)
        latency = [f"{median(key, lambda turn, p=p: turn[p]):.1f}" if clients else "" for p in ("p50", "p95", "p99")]
        client = f"{1000 * median(key, lambda turn: turn['client_cpu'] / turn['requests']):.2f}" if clients else ""
        cells = [clients or "", name, f"{1 / median(key, _wall):.0f}", *latency, f"{1000 * cpu:.2f}", client]
        lines.append("| " + " | ".join(map(str, [*cells, f"{floor / cpu:.0%}"])) + " |")
    lines += ["", "| aim | wanted | measured | met |", "|---|---|---|---|"]
    for aim in aims(turns):
        wanted = f"at {'most' if aim.is_most else 'least'} {aim.bound:g}"
        value = f"{statistics.median(aim.values):.2f} [{min(aim.values):.2f} - {max(aim.values):.2f}]"
        lines.append(f"| {aim.what} | {wanted} | {value} | {'yes' if aim.is_met else 'no'} |")
    lines += ["", "Largest difference of a score from raw: "]
    lines[-1] += ", ".join(f"{backend} {difference:.1e}" for backend, difference in about["differences"].items())
    return "\n".join(lines)


def compare(raw: Child, load: Child, backends: Mapping[str, Served]) -> dict[str, float]:
    """The largest difference of each backend's scores from the raw model's; RuntimeError for a different model."""
    wanted = raw.ask("answers")
    differences = {}
    for name, (_, address) in backends.items():
        scores = load.ask(address, COMPARING_CLIENTS, 0)
        differences[name] = max(abs(ours - raws) for ours, raws in zip(scores, wanted, strict=True))
        if differences[name] > TOLERANCE and name not in (BFLOAT16, OURS_INT8):
            raise RuntimeError(
                f"{name} is {differences[name]:.1e} off the raw model; at most {TOLERANCE:g} is the same"
            )
    return differences


def main(
    clients: Annotated[list[int], typer.Option(help="Concurrent clients.")] = [1, 4, 16, 64],  # noqa: B006
    backend: Annotated[list[str] | None, typer.Option(help="All, if none is named.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each backend has its turn.")] = 5,
    seconds: Annotated[float, typer.Option(help="Seconds of a turn.")] = 3.0,
    cores: Annotated[int, typer.Option(help="Cores of each backend.")] = 2,
    folder: Annotated[str | None, typer.Option(help="Keeps the exported models, or has them from before.")] = None,
    output: Annotated[str | None, typer.Option(help="Gets all turns, as JSON.")] = None,
) -> None:
    """Measure; print tables in Markdown."""
    with tempfile.TemporaryDirectory() as temporary:
        result = run(Path(folder or temporary), backend or list(SERVED), clients, rounds, seconds, cores)
    if output:
        Path(output).write_text(json.dumps(result, indent=1) + "\n")


def run(
    folder: Path, names: Sequence[str], clients: Sequence[int], rounds: int, seconds: float, cores: int
) -> dict[str, Any]:
    """Run the benchmark, print the tables, and return the turns."""
    available = sorted(os.sched_getaffinity(0))
    chosen, others = available[:cores], available[cores:] or available
    texts, origin = sentences(TEXTS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "texts.json").write_text(json.dumps(texts))
    if not (folder / "about.json").exists():
        export(folder)
    started: list[Child] = []

    def start(program: str, *arguments: str) -> tuple[Child, Any]:
        started.append(Child(f"serving.{program}", *arguments))
        return started[-1], started[-1].read()  # one by one: what is measured later is not in a hurry

    try:
        raw, _ = start("serving_backends", RAW, str(folder), json.dumps(chosen))
        load, _ = start("serving_load", str(folder / "texts.json"), json.dumps(others))
        backends = {}
        for name in names:
            process, ready = start("serving_backends", name, str(folder), json.dumps(chosen))
            backends[name] = (process, f"127.0.0.1:{ready['port']}")
        about = {
            **json.loads((folder / "about.json").read_text()),
            **{"texts": origin, "cores": chosen, "client_cores": others, "rounds": rounds, "seconds": seconds},
            "differences": compare(raw, load, backends),
        }
        turns = measure(raw, load, backends, clients, rounds, seconds)
    finally:
        for process in started:
            process.stop()
    print(report(turns, about))
    rows = [{"backend": name, "clients": count, "turns": of} for (name, count), of in turns.items()]
    judged = [aim._asdict() | {"is_met": aim.is_met} for aim in aims(turns)]
    return {"python": sys.version.split()[0], **about, "aims": judged, "rows": rows}


if __name__ == "__main__":
    typer.run(main)
