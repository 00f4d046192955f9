"""How fast BERT trains and predicts here, against `transformers` on torch and keras-hub, and against the machine.

    PYTHONPATH=$PWD .venv-bench/bin/python benchmarks/bench_model.py                    # everything: about an hour
    PYTHONPATH=$PWD .venv-bench/bin/python benchmarks/bench_model.py train --size mini --precision float32
    PYTHONPATH=$PWD .venv-bench/bin/python benchmarks/bench_model.py --quick            # a minute
    KERAS_BACKEND=jax PYTHONPATH=$PWD .venv-bench/bin/python benchmarks/bench_model.py jax         # a GPU, or --quick

Contestants are processes that stay alive (`model_contestants.py`) and are asked for steps in turn: every round asks
each of them once, and gives a ratio to bert-tfx for each; shown are the median of the ratios and, in brackets, the
least and the greatest. CPU seconds are of all threads of a contestant during its steps: start, compilation and warm-up
do not count. On a busy machine they are what can be compared, and even they suffer where threads wait for each other by
spinning (torch's).

The floor of a step is its matrix products at the rate of a large one (`matmul`, in each round), the share what of the
time of the step that would be: see `Case.step_flops`.

Experiments (train and infer, if none is named; with KERAS_BACKEND=jax, jax):
    train      a training step with NSP, logits of masked tokens: forward, backward, clipping, optimizer
    infer      those logits
    rows       train, of rows that hold one sequence of any length, and of packed ones: useful tokens a second
    jax        bert-tfx and keras-hub on JAX: base at 128 and 512, large at 512, packed rows against padded ones; the
               rate of the machine is that of its GPU, if it has one
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from model_case import Case
from model_contestants import CONTESTANTS
from rich.console import Console
from rich.table import Table

OURS, MACHINE = "bert-tfx", "matmul"
# Rows of a batch: about as many as the sizes were trained with a core, as far as a CPU takes a few seconds for them.
BATCH = {("mini", 128): 32, ("mini", 512): 8, ("base", 128): 8, ("base", 512): 2}
GPU_BATCH = {("base", 128): 256, ("base", 512): 64, ("large", 512): 32}


class Contestant:
    """A process that does steps when it is told to."""

    def __init__(self, name: str, case: Case):
        self.name = name
        self.turns: list[dict[str, float]] = []  # seconds a step, wall and CPU
        self.peak_bytes = 0
        command = [sys.executable, str(Path(__file__).with_name("model_contestants.py")), name]
        self._process = subprocess.Popen(
            [*command, json.dumps(dataclasses.asdict(case))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self._count = 1

    def start(self) -> str | None:
        """Waits until it is warm; if it cannot, says why not."""
        line = self._process.stdout.readline()
        if not line:
            errors = self._process.stderr.read().strip().splitlines()
            return errors[-1] if errors else "it ended without a word"
        self.about = json.loads(line)
        return None

    def turn(self) -> None:
        """Does some steps, and keeps what one of them took."""
        self.turns.append(self._steps(self._count))

    def calibrate(self, seconds: float) -> None:
        """Decides how many steps a turn has, so that it takes about so many CPU seconds."""
        self._count = max(1, round(seconds / self._steps(1)["cpu"]))

    def _steps(self, count: int) -> dict[str, float]:
        print(count, file=self._process.stdin, flush=True)
        took = json.loads(self._process.stdout.readline())
        self.peak_bytes = took["peak_bytes"]
        return {kind: took[kind] / count for kind in ("wall", "cpu")}

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def median(self, kind: str) -> float:
        """Seconds a step."""
        return statistics.median(turn[kind] for turn in self.turns)


class Bench:
    """The results of one call."""

    def __init__(self, rounds: int, seconds: float):
        self.rounds, self.seconds = rounds, seconds
        self.rows: list[dict] = []
        self.console = Console(stderr=True, width=160)

    def compare(self, case: Case, names: Iterable[str]) -> None:
        """Measures contestants in turn, and shows them."""
        title = f"{case.mode}: {case.size}, {case.batch} {case.rows} rows of {case.length}, {case.precision}"
        running = []
        try:
            for name in names:
                # One starts after the other: what is compiled does not count, but it would slow the next one down.
                contestant = Contestant(name, case)
                if why := contestant.start():
                    contestant.stop()
                    self.console.print(f"{title}: {name} does not run: {why}")
                else:
                    running.append(contestant)
                    contestant.calibrate(self.seconds)
            for _ in range(self.rounds):
                for contestant in running:
                    contestant.turn()
        finally:
            for contestant in running:
                contestant.stop()
        rows = [self._row(case, contestant, running) for contestant in running if contestant.name != MACHINE]
        self.rows += rows
        self.console.print(_table(title, rows))

    def _row(self, case: Case, contestant: Contestant, running: list[Contestant]) -> dict:
        by_name = {other.name: other for other in running}
        cpu, wall = contestant.median("cpu"), contestant.median("wall")
        row = {
            **dataclasses.asdict(case),
            "contestant": contestant.name,
            "step_cpu_seconds": round(cpu, 4),
            "step_wall_seconds": round(wall, 4),
            "tokens_per_cpu_second": round(contestant.about["tokens"] / cpu),
            "tokens_per_second": round(contestant.about["tokens"] / wall),
            "useful_tokens_per_second": round(contestant.about["useful_tokens"] / wall),
            "peak_megabytes": round(contestant.peak_bytes / 1e6),
        }
        for kind in ("cpu", "wall"):
            if OURS in by_name and contestant.name != OURS:
                pairs = zip(contestant.turns, by_name[OURS].turns, strict=True)
                ratios = sorted(theirs[kind] / ours[kind] for theirs, ours in pairs)
                row[f"{kind}_ratio"] = [round(x, 2) for x in (statistics.median(ratios), ratios[0], ratios[-1])]
            if MACHINE in by_name:
                machine = by_name[MACHINE]
                floor = contestant.about["flops"] / machine.about["flops"] * machine.median(kind)
                row[f"{kind}_floor_seconds"] = round(floor, 4)
                row[f"{kind}_share"] = round(floor / contestant.median(kind), 3)
        return row


def _table(title: str, rows: list[dict]) -> Table:
    table = Table(title=title)
    for column in ("", "ms CPU", "ms wall", "tokens a CPU second", "a second", "useful", "bert-tfx is, by CPU"):
        table.add_column(column, justify="left" if not column else "right")
    for column in ("by wall", "share, CPU", "wall", "peak MB"):
        table.add_column(column, justify="right")

    def ratio(row, kind):
        values = row.get(f"{kind}_ratio")
        return f"{values[0]:.2f}x [{values[1]:.2f}-{values[2]:.2f}]" if values else ""

    for row in rows:
        table.add_row(
            row["contestant"],
            *(f"{1000 * row[f'step_{kind}_seconds']:.0f}" for kind in ("cpu", "wall")),
            *(f"{row[name]:,}" for name in ("tokens_per_cpu_second", "tokens_per_second", "useful_tokens_per_second")),
            *(ratio(row, kind) for kind in ("cpu", "wall")),
            *(f"{row.get(f'{kind}_share', 0):.0%}" for kind in ("cpu", "wall")),
            f"{row['peak_megabytes']:,}",
        )
    return table


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[EXPERIMENT]...", help="train, infer, rows, jax.")
    ] = None,
    size: Annotated[list[str], typer.Option(help="mini, base.")] = ["mini", "base"],  # noqa: B006
    length: Annotated[list[int], typer.Option(help="128, 512.")] = [128, 512],  # noqa: B006
    precision: Annotated[list[str], typer.Option(help="float32, bfloat16.")] = ["float32", "bfloat16"],  # noqa: B006
    contestant: Annotated[list[str] | None, typer.Option(help="All, if none is named.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each contestant has its turn.")] = 7,
    seconds: Annotated[float, typer.Option(help="CPU seconds of a turn, about.")] = 4.0,
    quick: Annotated[bool, typer.Option(help="mini at 128, float32, fewer contestants and rounds.")] = False,
) -> None:
    """Measures; prints tables, and a line of JSON."""
    on_jax = os.environ.get("KERAS_BACKEND") == "jax"
    bench = Bench(3 if quick else rounds, 1.0 if quick else seconds)
    chosen = contestant or [name for name in CONTESTANTS if not (quick and name.endswith(("XLA", "compiled")))]
    for experiment in names or (["jax"] if on_jax else ["train"] if quick else ["train", "infer"]):
        if experiment == "jax":
            chosen = [OURS, "keras-hub", MACHINE]
            cases = list(_jax_cases(quick))
        elif experiment == "rows":
            shapes = [(s, n) for s in size for n in length]
            cases = [
                Case(*s, BATCH[s], p, rows=rows) for s in shapes for p in precision for rows in ("padded", "packed")
            ]
        else:
            shapes = [(s, n) for s in size for n in length] if not quick else [("mini", 128)]
            precisions = precision if not quick else ["float32"]
            cases = [Case(s, n, BATCH[s, n], p, experiment) for s, n in shapes for p in precisions]
        for case in cases:
            # The others cannot train on packed rows.
            bench.compare(case, [n for n in chosen if case.rows != "packed" or n.startswith((OURS, MACHINE))])
    print(json.dumps({"python": sys.version.split()[0], "cpus": os.cpu_count(), "rows": bench.rows}))


def _jax_cases(quick: bool) -> Iterable[Case]:
    if quick:
        yield from (Case("mini", 128, 8, "float32", rows=rows) for rows in ("full", "padded", "packed"))
        return
    for (size, length), batch in GPU_BATCH.items():
        yield Case(size, length, batch, "bfloat16")
    for rows in ("padded", "packed"):
        yield Case("base", 512, GPU_BATCH["base", 512], "bfloat16", rows=rows)


if __name__ == "__main__":
    typer.run(main)
