"""Benchmark of serving a BERT of MiniLM's size from raw text, beside its peers.

    BERT_DATA_DIR=DIR .venv-bench/bin/python -m benchmarks.serving.bench_serving  # 12 minutes
    ... -m benchmarks.serving.bench_serving --rounds 1 --seconds 1 --clients 1 --clients 16  # 3 minutes

One model (6 layers of 384, one number per text) in each side (`serving_backends.py`), in a separate process on the same
cores, behind gRPC or REST on the loopback interface; real sentences of mixed length, one per request; 1 to 64 clients,
in closed loops, in one process (`serving_load.py`) on the other cores, if any. All sides first answer all texts, with
16 clients at once: scores must equal the first side's to 1e-3 (int8's differences are printed; fastembed has none).

    bert-tfx             the embedded server of `bert-tfx serve`, with TensorFlow, ONNX Runtime, and OpenVINO in int8
    thin, FastAPI        ONNX Runtime in float32 behind as little Python as possible; fastembed, where it is installed

Sides take turns, each round in another order; figures are medians over the rounds, ratios are between turns of one
round: median [minimum - maximum]. CPU is the kernel's count for all threads of the process.
"""

from __future__ import annotations

import importlib.util
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
from benchmarks.serving.serving_backends import FASTEMBED, INT8, NEEDED, OURS, PEERS, SIDES
from benchmarks.serving.serving_load import export, sentences

TEXTS, COMPARING_CLIENTS, TOLERANCE = 512, 16, 1e-3
# Texts a second in int8 on two cores, milliseconds of CPU for one, and with how many clients.
INT8_RATE, INT8_CPU, MOST_CLIENTS = 700.0, 2.5, 64

# (side, gRPC or REST, clients) -> one turn per round.
Key = tuple[str, str, int]
Turns = Mapping[Key, Sequence[Mapping[str, float]]]


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
    """The targets for the measured sides."""
    found = []
    for over, clients in sorted({key[1:] for key in turns}):
        ours, peers = (
            [[_rate(turn) for turn in turns[side, over, clients]] for side in sides if (side, over, clients) in turns]
            for sides in (OURS, PEERS[over])
        )
        if ours and peers:
            ratios = [max(a) / max(b) for a, b in zip(zip(*ours, strict=True), zip(*peers, strict=True), strict=True)]
            found.append(Aim(f"best float32 over the best peer, requests/s, {over}, {clients} clients", ratios, 1.0))
        if int8 := turns.get((INT8, over, clients)):
            if clients == 1:
                cpu = [1000 * _cpu(turn) for turn in int8]
                found.append(Aim(f"one text in int8, ms of CPU, {over}", cpu, INT8_CPU, is_most=True))
            if clients == MOST_CLIENTS:
                found.append(Aim(f"int8, texts/s, {over}, {clients} clients", list(map(_rate, int8)), INT8_RATE))
    return found


def _rate(turn: Mapping[str, float]) -> float:
    return turn["requests"] / turn["wall"]


def _cpu(turn: Mapping[str, float]) -> float:
    return turn["cpu"] / turn["requests"]


def measure(
    load: Child, sides: Mapping[tuple[str, str], tuple[Child, str]], clients: Sequence[int], rounds: int, seconds: float
) -> dict[Key, list[dict[str, float]]]:
    """Measure all sides in every round; each round starts with another one."""
    turns: dict[Key, list[dict[str, float]]] = {}
    names = list(sides)
    for number in range(rounds):
        for count in clients:
            for name, over in names[number % len(names) :] + names[: number % len(names)]:
                process, address = sides[name, over]
                before = process.ask("cpu")
                turn = load.ask(address, over, count, seconds)
                turns.setdefault((name, over, count), []).append(turn | {"cpu": process.ask("cpu") - before})
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return turns


def report(turns: Turns, about: Mapping[str, Any]) -> str:
    """The tables, in Markdown."""

    def median(key: Key, figure: Callable[[Mapping[str, float]], float]) -> float:
        return statistics.median(map(figure, turns[key]))

    lines = [
        f"{about['texts']}; {about['tokens']:.1f} pieces a text; cores {about['cores']} for the sides and "
        f"{about['client_cores']} for the clients; {about['rounds']} rounds of {about['seconds']:g} s.",
        "",
        "| over | clients | side | requests/s | p50 ms | p95 | p99 | CPU ms/request | its clients' |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key in sorted(turns, key=lambda key: key[1:]):
        name, over, clients = key
        latency = [f"{median(key, lambda turn, p=p: turn[p]):.1f}" for p in ("p50", "p95", "p99")]
        client = f"{1000 * median(key, lambda turn: turn['client_cpu'] / turn['requests']):.2f}"
        cells = [over, clients, name, f"{median(key, _rate):.0f}", *latency, f"{1000 * median(key, _cpu):.2f}", client]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "| aim | wanted | measured | met |", "|---|---|---|---|"]
    for aim in aims(turns):
        wanted = f"at {'most' if aim.is_most else 'least'} {aim.bound:g}"
        value = f"{statistics.median(aim.values):.2f} [{min(aim.values):.2f} - {max(aim.values):.2f}]"
        lines.append(f"| {aim.what} | {wanted} | {value} | {'yes' if aim.is_met else 'no'} |")
    lines += ["", "Largest difference of a score from the first side's: "]
    lines[-1] += ", ".join(f"{side} {difference:.1e}" for side, difference in about["differences"].items())
    return "\n".join(lines)


def compare(load: Child, sides: Mapping[tuple[str, str], tuple[Child, str]]) -> dict[str, float]:
    """The largest difference of each side's scores from the first one's; RuntimeError for a different model."""
    differences: dict[str, float] = {}
    wanted: list[float] = []
    for (name, over), (_, address) in sides.items():
        scores = load.ask(address, over, COMPARING_CLIENTS, 0)
        wanted = wanted or scores
        if name == FASTEMBED:
            continue
        difference = max(abs(one - other) for one, other in zip(scores, wanted, strict=True))
        differences[f"{name} ({over})"] = difference
        if difference > TOLERANCE and name != INT8:
            raise RuntimeError(f"{name} is {difference:.1e} off the first side; at most {TOLERANCE:g} is the same")
    return differences


def main(
    clients: Annotated[list[int], typer.Option(help="Concurrent clients.")] = [1, 4, 16, 64],  # noqa: B006
    side: Annotated[list[str] | None, typer.Option(help="All that are installed, if none is named.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each side has its turn.")] = 6,
    seconds: Annotated[float, typer.Option(help="Seconds of a turn.")] = 2.0,
    cores: Annotated[int, typer.Option(help="Cores of each side.")] = 2,
    folder: Annotated[str | None, typer.Option(help="Keeps the exported models, or has them from before.")] = None,
    output: Annotated[str | None, typer.Option(help="Gets all turns, as JSON.")] = None,
) -> None:
    """Measure; print tables in Markdown."""
    installed = [name for name in SIDES if name not in NEEDED or importlib.util.find_spec(NEEDED[name])]
    for name in side or []:
        if name not in installed:
            raise typer.BadParameter(f"{name!r} is none of the installed sides: {', '.join(installed)}")
    with tempfile.TemporaryDirectory() as temporary:
        result = run(Path(folder or temporary), side or installed, clients, rounds, seconds, cores)
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
        load, _ = start("serving_load", str(folder / "texts.json"), json.dumps(others))
        sides = {}
        for name in names:
            process, ports = start("serving_backends", name, str(folder), json.dumps(chosen))
            sides |= {(name, over): (process, f"127.0.0.1:{ports[over]}") for over in SIDES[name]}
        about = {
            **json.loads((folder / "about.json").read_text()),
            **{"texts": origin, "cores": chosen, "client_cores": others, "rounds": rounds, "seconds": seconds},
            "differences": compare(load, sides),
        }
        turns = measure(load, sides, clients, rounds, seconds)
    finally:
        for process in started:
            process.stop()
    print(report(turns, about))
    rows = [{"side": name, "over": over, "clients": count, "turns": of} for (name, over, count), of in turns.items()]
    judged = [aim._asdict() | {"is_met": aim.is_met} for aim in aims(turns)]
    return {"python": sys.version.split()[0], **about, "aims": judged, "rows": rows}


if __name__ == "__main__":
    typer.run(main)
