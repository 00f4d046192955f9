"""Runs every case of finetune_cases.py on both sides with its seeds, and draws the table of docs/results.md.

    BERT_DATA_DIR=../shared/data .venv/bin/python benchmarks/finetune_results.py run /tmp/results        # 4 CPU hours
    .venv/bin/python benchmarks/finetune_results.py table /tmp/results

`run OUTPUT cola rte` runs those alone.

`run` goes on where it was: what OUTPUT/SIDE.jsonl has, with today's settings, is not run again. The sides run beside
each other, a core each.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev

from finetune_cases import CASES, PRECISION

HERE = Path(__file__).parent
SIDES = {"bert-tfx": (".venv", "finetune_ours.py"), "transformers": (".venv-bench", "finetune_peer.py")}
# Those whose scores have a floor first.
ORDER = ("sts-b", "mrpc", "sst-2", "rte", "cola", "wnut17", "squad1.1")


def run(output: str, *cases: str) -> None:
    """Appends a line a run to `OUTPUT/SIDE.jsonl`, of all cases if none is named."""
    Path(output).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(SIDES)) as pool:
        for done in [pool.submit(run_side, output, side, cases or ORDER) for side in SIDES]:
            done.result()


def run_side(output: str, side: str, cases: Sequence[str]) -> None:
    """Every run of a side, each in a process of its own."""
    environment, program = SIDES[side]
    for seed in sorted({seed for case in CASES.values() for seed in case.seeds}):
        for case in cases:
            if seed not in CASES[case].seeds or (case, seed) in read(output, side):
                continue
            print(f"{side} {case} seed {seed}", flush=True)
            command = [HERE.parent / environment / "bin/python", HERE / program, case, "--seed", seed, "--threads", 1]
            done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
            line = done.stdout.splitlines()[-1]
            json.loads(line)
            with open(Path(output) / f"{side}.jsonl", "a", encoding="utf-8") as file:
                file.write(line + "\n")


def read(output: str, side: str) -> dict[tuple[str, int], dict]:
    """The runs of a side by case and seed, with today's settings."""
    path = Path(output) / f"{side}.jsonl"
    runs = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    return {(found["case"], found["seed"]): found for found in runs if _is_of_today(found["case"], found["settings"])}


def _is_of_today(name: str, settings: Mapping) -> bool:
    case = CASES[name]
    wanted = {
        "epochs": case.epochs,
        "train_batch_size": case.train_batch_size,
        "learning_rate": case.learning_rate,
        "max_seq_length": case.task_settings.max_seq_length,
        "mixed_precision": PRECISION,
    }
    return wanted == {key: settings.get(key) for key in wanted}


def table(output: str) -> None:
    """The table in Markdown: mean and deviation over the seeds, and whether the two are within noise."""
    runs = {side: read(output, side) for side in SIDES}
    print("| task | score | bert-tfx | transformers | difference | allowed | CPU minutes a run |")
    print("|---|---|---|---|---|---|---|")
    for case in ORDER:
        found = {
            side: [runs[side][case, seed] for seed in CASES[case].seeds if (case, seed) in runs[side]] for side in SIDES
        }
        ours, theirs = found.values()
        if not ours or not theirs:
            continue
        for metric in ours[0]["metrics"]:
            values = [[one["metrics"][metric] for one in side] for side in (ours, theirs)]
            difference = mean(values[0]) - mean(values[1])
            allowed = max(1.0, pooled_deviation(*values))
            minutes = " : ".join(f"{mean(one['cpu_seconds'] for one in side) / 60:.1f}" for side in (ours, theirs))
            cells = [f"{mean(v):.2f} ± {stdev(v):.2f} ({len(v)})" if len(v) > 1 else f"{v[0]:.2f} (1)" for v in values]
            print(f"| {case} | {metric} | {' | '.join(cells)} | {difference:+.2f} | {allowed:.2f} | {minutes} |")


def pooled_deviation(first: list[float], second: list[float]) -> float:
    """The deviation within two samples together; 0 where neither has two values."""
    samples = [sample for sample in (first, second) if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in samples)
    return math.sqrt(sum((len(s) - 1) * stdev(s) ** 2 for s in samples) / freedom) if freedom else 0.0


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
