"""How fast a BERT of MiniLM's size is served here from raw text: bert-tfx, torch, ONNX Runtime, and no server at all.

    BERT_DATA_DIR=../shared/data PYTHONPATH=$PWD .venv-bench/bin/python benchmarks/bench_serving.py    # 20 minutes
    ... benchmarks/bench_serving.py --rounds 1 --seconds 1 --clients 1 --clients 16                    # 4 minutes

One model (6 layers of 384, a number a text) on each side (`serving_sides.py`), in a process of its own on the same
cores, behind gRPC on the loopback interface; real sentences of mixed length, one a request; 1 to 64 clients, each in a
closed loop, in one process (`serving_load.py`) on the other cores where there are any. All sides first answer all
texts, with 16 clients at once: scores must be the raw model's to 1e-3 (bfloat16's difference is printed).

    raw                  the SavedModel called in a loop: a text at a time, and in batches of up to 32 out of the
                         buckets of length that the server has, which is as good as batching can get
    bert-tfx             the embedded server as `bert-tfx serve` runs it; also without batching, and (where it is
                         named: --side "bert-tfx, bfloat16") with bfloat16 products
    torch, onnx          eager `transformers` and its fast tokenizer; ONNX Runtime, `tokenizers` in front: a request a
                         call, a thread each, as they are commonly put behind a service; `batched`: up to 32 requests
                         that wait are one call. Both are judged by the better of the two in each round.

The floor of a text is its matrix products (`bert_keras.flops`, no padding) at the rate of a large one, which has its
turn in each round; the share is what of the server's CPU seconds a request that would be. No side can do without it in
float32. Sides take turns; figures are medians over the rounds, ratios are of turns of one round: median [least -
greatest]. CPU is the kernel's count of all threads of the process: on a busy machine it is what can be compared.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from contest import ENVIRONMENT
from serving_load import sentences
from serving_sides import BFLOAT16, ONNX, ONNX_BATCHED, OURS, RAW, SERVED, TORCH, TORCH_BATCHED, UNBATCHED

TEXTS, COMPARING_CLIENTS, TOLERANCE = 512, 16, 1e-3
ALONE, BATCHES, MATMUL = "alone", "batches", "matmul"
BATCHED_CLIENTS = 16
HERE = Path(__file__).parent

# (side, clients) -> a turn a round; of the raw model's loops 0 clients.
Turns = Mapping[tuple[str, int], Sequence[Mapping[str, float]]]


class Process:
    """A program beside this one that answers a line of JSON with one."""

    def __init__(self, name: str, program: str, *arguments: str):
        self.name = name
        self._log = log = tempfile.TemporaryFile("w+")  # noqa: SIM115  until `stop`
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(HERE.parent)},
            start_new_session=True,  # Linux shares the cores out by session
        )

    def read(self) -> Any:
        """Its next answer; RuntimeError with its last words if it ended."""
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            words = self._log.read().strip().splitlines()[-5:]
            raise RuntimeError(f"{self.name} ended with {self._process.wait()}: " + "\n".join(words))
        return json.loads(line)

    def ask(self, *command: Any) -> Any:
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return self.read()

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()


Served = tuple[Process, str]  # and its gRPC address


@dataclasses.dataclass(frozen=True)
class Aim:
    """What was wanted, and what came out.

    Attributes:
        what: in words.
        values: a round each.
        bound: of their median.
        is_most: whether it may at most be that; else at least.
    """

    what: str
    values: Sequence[float]
    bound: float
    is_most: bool = False

    @property
    def is_met(self) -> bool:
        """By the median."""
        value = statistics.median(self.values)
        return value <= self.bound if self.is_most else value >= self.bound


def aims(turns: Turns) -> list[Aim]:
    """The aims, each as far as its sides ran; throughput is judged at every number of clients."""
    counts = sorted({clients for _, clients in turns if clients})
    found = []
    if (f"{RAW}, {BATCHES}", 0) in turns and (OURS, counts[-1]) in turns:
        raw, served = turns[f"{RAW}, {BATCHES}", 0], turns[OURS, counts[-1]]
        for kind, how in ((_cpu, "CPU seconds a request"), (_wall, "seconds a request, clients on the same machine")):
            values = [kind(s) / kind(r) - 1 for s, r in zip(served, raw, strict=True)]
            found.append(Aim(f"overhead over raw batches, {counts[-1]} clients: {how}", values, 0.15, is_most=True))
    pairs: list[tuple[str, str, tuple[str, ...], float, list[int]]] = [
        ("batching over none", OURS, (UNBATCHED,), 2.0, [n for n in counts if n == BATCHED_CLIENTS]),
        ("bert-tfx over torch", OURS, (TORCH, TORCH_BATCHED), 1.0, counts),
        ("bert-tfx over ONNX Runtime", OURS, (ONNX, ONNX_BATCHED), 0.9, counts),
        ("bfloat16 over both", BFLOAT16, (TORCH, TORCH_BATCHED, ONNX, ONNX_BATCHED), 1.0, counts),
    ]
    for what, side, others, bound, at in pairs:
        for clients in at:
            present = [turns[other, clients] for other in others if (other, clients) in turns]
            if present and (side, clients) in turns:
                best = [min(map(_wall, of_round)) for of_round in zip(*present, strict=True)]
                values = [b / _wall(own) for own, b in zip(turns[side, clients], best, strict=True)]
                found.append(Aim(f"{what}, {clients} clients: requests/s", values, bound))
    return found


def _wall(turn: Mapping[str, float]) -> float:
    return turn["wall"] / turn["requests"]


def _cpu(turn: Mapping[str, float]) -> float:
    return turn["cpu"] / turn["requests"]


def measure(
    raw: Process, load: Process, sides: Mapping[str, Served], clients: Sequence[int], rounds: int, seconds: float
) -> dict[tuple[str, int], list[dict[str, float]]]:
    """In each round everyone has a turn; each begins with another side."""
    turns: dict[tuple[str, int], list[dict[str, float]]] = {}
    for number in range(rounds):
        for kind in (MATMUL, ALONE, BATCHES):
            turns.setdefault((f"{RAW}, {kind}", 0), []).append(raw.ask(kind, seconds))
        for count in clients:
            names = list(sides)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                process, address = sides[name]
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
        f"{about['texts']}; {about['tokens']:.1f} pieces a text; cores {about['cores']} for the sides and "
        f"{about['client_cores']} for the clients; {about['rounds']} rounds of {about['seconds']:g} s.",
        f"Floor: {1000 * floor:.2f} ms CPU a text, at {rate / 1e9:.0f} GFLOP/s a CPU second.",
        "",
        "| clients | side | requests/s | p50 ms | p95 | p99 | CPU ms a request | its clients' | share of the floor |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, clients in sorted(turns, key=lambda key: key[1]):
        if name == f"{RAW}, {MATMUL}":
            continue
        key = name, clients
        cpu = median(key, _cpu)
        latency = [f"{median(key, lambda turn, p=p: turn[p]):.1f}" if clients else "" for p in ("p50", "p95", "p99")]
        own = f"{1000 * median(key, lambda turn: turn['client_cpu'] / turn['requests']):.2f}" if clients else ""
        cells = [clients or "", name, f"{1 / median(key, _wall):.0f}", *latency, f"{1000 * cpu:.2f}", own]
        lines.append("| " + " | ".join(map(str, [*cells, f"{floor / cpu:.0%}"])) + " |")
    lines += ["", "| aim | wanted | measured | met |", "|---|---|---|---|"]
    for aim in aims(turns):
        wanted = f"at {'most' if aim.is_most else 'least'} {aim.bound:g}"
        value = f"{statistics.median(aim.values):.2f} [{min(aim.values):.2f} - {max(aim.values):.2f}]"
        lines.append(f"| {aim.what} | {wanted} | {value} | {'yes' if aim.is_met else 'no'} |")
    lines += ["", "Largest difference of a score from raw: "]
    lines[-1] += ", ".join(f"{side} {difference:.1e}" for side, difference in about["differences"].items())
    return "\n".join(lines)


def compare(raw: Process, load: Process, sides: Mapping[str, Served]) -> dict[str, float]:
    """The largest difference of each side's scores from the raw model's; RuntimeError if it is not the same model."""
    wanted = raw.ask("answers")
    differences = {}
    for name, (_, address) in sides.items():
        found = load.ask(address, COMPARING_CLIENTS, 0)
        differences[name] = max(abs(one - other) for one, other in zip(found, wanted, strict=True))
        if differences[name] > TOLERANCE and name != BFLOAT16:
            raise RuntimeError(
                f"{name} is {differences[name]:.1e} off the raw model; at most {TOLERANCE:g} is the same"
            )
    return differences


def main(
    clients: Annotated[list[int], typer.Option(help="Concurrent clients.")] = [1, 4, 16, 64],  # noqa: B006
    side: Annotated[list[str] | None, typer.Option(help="All, if none is named.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each side has its turn.")] = 5,
    seconds: Annotated[float, typer.Option(help="Seconds of a turn.")] = 3.0,
    cores: Annotated[int, typer.Option(help="Cores of each side.")] = 2,
    folder: Annotated[str | None, typer.Option(help="Keeps the exported models, or has them from before.")] = None,
    output: Annotated[str | None, typer.Option(help="Gets all turns, as JSON.")] = None,
) -> None:
    """Measures; prints tables in Markdown."""
    with tempfile.TemporaryDirectory() as temporary:
        result = run(Path(folder or temporary), side or list(SERVED), clients, rounds, seconds, cores)
    if output:
        Path(output).write_text(json.dumps(result, indent=1) + "\n")


def run(
    folder: Path, names: Sequence[str], clients: Sequence[int], rounds: int, seconds: float, cores: int
) -> dict[str, Any]:
    """All of it; prints the tables, and returns the turns."""
    available = sorted(os.sched_getaffinity(0))
    chosen, others = available[:cores], available[cores:] or available
    texts, origin = sentences(TEXTS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "texts.json").write_text(json.dumps(texts))
    if not (folder / "about.json").exists():
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(HERE.parent)}
        exporter = [sys.executable, str(HERE / "serving_sides.py"), "export", str(folder)]
        subprocess.run(exporter, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started: list[Process] = []

    def start(name: str, program: str, *arguments: str) -> tuple[Process, Any]:
        started.append(Process(name, program, *arguments))
        return started[-1], started[-1].read()  # one by one: what is measured later is not in a hurry

    try:
        raw, _ = start(RAW, "serving_sides.py", RAW, str(folder), json.dumps(chosen))
        load, _ = start("load", "serving_load.py", str(folder / "texts.json"), json.dumps(others))
        sides = {}
        for name in names:
            process, ready = start(name, "serving_sides.py", name, str(folder), json.dumps(chosen))
            sides[name] = (process, f"127.0.0.1:{ready['port']}")
        about = {
            **json.loads((folder / "about.json").read_text()),
            **{"texts": origin, "cores": chosen, "client_cores": others, "rounds": rounds, "seconds": seconds},
            "differences": compare(raw, load, sides),
        }
        turns = measure(raw, load, sides, clients, rounds, seconds)
    finally:
        for process in started:
            process.stop()
    print(report(turns, about))
    rows = [{"side": name, "clients": count, "turns": of} for (name, count), of in turns.items()]
    judged = [dataclasses.asdict(aim) | {"is_met": aim.is_met} for aim in aims(turns)]
    return {"python": sys.version.split()[0], **about, "aims": judged, "rows": rows}


if __name__ == "__main__":
    typer.run(main)
