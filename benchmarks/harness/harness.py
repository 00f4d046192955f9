"""Interleaved measurement of the contestants of a benchmark, so that disturbances of the machine affect all of them.

A contestant is a long-lived process (`model_implementations.py`) that runs steps on request. Every round measures each
of them once; figures are medians over the rounds, ratios are between the turns of a round.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.table import Table

from benchmarks.harness.child import Child
from benchmarks.model.model_config import Case

OURS, MACHINE = "bert-tfx", "matmul"
# Rows of a batch: about the sizes' training batch per core, limited to a few seconds of CPU.
BATCH = {("mini", 128): 32, ("mini", 512): 8, ("base", 128): 8, ("base", 512): 2}


class Contestant:
    """A process that runs steps on request."""

    def __init__(self, name: str, case: Case):
        self.name, self.case = name, case
        self.turns: list[dict[str, float]] = []  # seconds a step, wall and CPU
        self.peak_bytes = 0
        self._child = Child("model.model_implementations", name, json.dumps(dataclasses.asdict(case)))
        self._count = 1

    def start(self) -> str | None:
        """Wait until it is warmed up; report the reason if it fails."""
        try:
            self.about = self._child.read()
        except RuntimeError as error:
            return str(error)
        return None

    def turn(self) -> None:
        """Run some steps, and store the time per step."""
        self.turns.append(self._steps(self._count))

    def calibrate(self, seconds: float) -> None:
        """Set the number of steps per turn for a target of CPU seconds, or of seconds if those are more (a GPU's)."""
        self._count = max(1, round(seconds / max(self._steps(1).values())))

    def _steps(self, count: int) -> dict[str, float]:
        took = self._child.ask(count)
        self.peak_bytes = took["peak_bytes"]
        return {kind: took[kind] / count for kind in ("wall", "cpu")}

    def stop(self) -> None:
        """Stop the process."""
        self._child.stop()

    def median(self, kind: str) -> float:
        """Seconds per step."""
        return statistics.median(turn[kind] for turn in self.turns)

    def over(self, other: Contestant, kind: str) -> list[float]:
        """Ratio of useful tokens per second to another's: median, minimum and maximum over the rounds."""
        pairs = zip(self.turns, other.turns, strict=True)
        useful = self.about["useful_tokens"] / other.about["useful_tokens"]
        ratios = sorted(useful * theirs[kind] / own[kind] for own, theirs in pairs)
        return [round(ratio, 2) for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]


Ratio = Callable[[Contestant, dict[str, Contestant]], tuple[Contestant, Contestant] | None]


class Bench:
    """The results of one call.

    Args:
        rounds: turns of each contestant.
        seconds: approximate CPU seconds of a turn.
        ratio: (contestant, all by name) -> numerator and denominator, or None for no ratio.
        heading: heading of the ratios.
    """

    def __init__(self, rounds: int, seconds: float, ratio: Ratio, heading: str):
        self.rounds, self.seconds = rounds, seconds
        self.rows: list[dict] = []
        self.console = Console(stderr=True, width=160)
        self._ratio, self._heading = ratio, heading

    def compare(self, title: str, entries: Iterable[tuple[str, Case]]) -> None:
        """Measure contestants in turn, and print the results."""
        started: list[Contestant] = []
        running: list[Contestant] = []
        try:
            started = [Contestant(name, case) for name, case in entries]
            for contestant in started:
                if why := contestant.start():
                    self.console.print(f"{title}: {contestant.name} does not run: {why}")
                else:
                    running.append(contestant)
            for contestant in running:
                contestant.calibrate(self.seconds)
            for _ in range(self.rounds):
                for contestant in running:
                    contestant.turn()
        finally:
            for contestant in started:
                contestant.stop()
        rows = [self._row(contestant, running) for contestant in running if contestant.name != MACHINE]
        self.rows += rows
        self.console.print(self._table(title, rows))

    def _row(self, contestant: Contestant, running: list[Contestant]) -> dict:
        by_name = {other.name: other for other in running}
        about = contestant.about
        row = {
            **dataclasses.asdict(contestant.case),
            "contestant": contestant.name,
            "peak_megabytes": round(contestant.peak_bytes / 1e6),
        }
        pair = self._ratio(contestant, by_name)
        for kind in ("cpu", "wall"):
            seconds = contestant.median(kind)
            row[f"step_{kind}_seconds"] = round(seconds, 4)
            row[f"tokens_per_{kind}_second"] = round(about["tokens"] / seconds)
            row[f"useful_tokens_per_{kind}_second"] = round(about["useful_tokens"] / seconds)
            if pair:
                row[f"{kind}_ratio"] = pair[0].over(pair[1], kind)
            if MACHINE in by_name:
                machine = by_name[MACHINE]
                floor = about["flops"] / machine.about["flops"] * machine.median(kind)
                row[f"{kind}_floor_seconds"] = round(floor, 4)
                row[f"{kind}_share"] = round(floor / seconds, 3)
        return row

    def _table(self, title: str, rows: list[dict]) -> Table:
        table = Table(title=title)
        table.add_column("")
        columns = ("ms CPU", "ms wall", "tokens a CPU second", "useful", "useful a second", f"{self._heading}, by CPU")
        for column in (*columns, "by wall", "share, CPU", "wall", "peak MB"):
            table.add_column(column, justify="right")

        def ratio(row, kind):
            values = row.get(f"{kind}_ratio")
            return f"{values[0]:.2f}x [{values[1]:.2f}-{values[2]:.2f}]" if values else ""

        counted = ("tokens_per_cpu_second", "useful_tokens_per_cpu_second", "useful_tokens_per_wall_second")
        for row in rows:
            table.add_row(
                row["contestant"] + (f", {row['rows']}" if row["rows"] != "full" else ""),
                *(f"{1000 * row[f'step_{kind}_seconds']:.0f}" for kind in ("cpu", "wall")),
                *(f"{row[name]:,}" for name in counted),
                *(ratio(row, kind) for kind in ("cpu", "wall")),
                *(f"{row.get(f'{kind}_share', 0):.0%}" for kind in ("cpu", "wall")),
                f"{row['peak_megabytes']:,}",
            )
        return table

    def print(self) -> None:
        """Print all rows as a line of JSON."""
        print(json.dumps({"python": sys.version.split()[0], "cpus": os.cpu_count(), "rows": self.rows}))
