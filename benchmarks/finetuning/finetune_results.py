"""Run every case of finetune_cases.py on both backends with its seeds; print the table of results.md.

    BERT_DATA_DIR=../shared/data .venv/bin/python -m benchmarks.finetuning.finetune_results run /tmp/results  # 4
    CPU hours .venv/bin/python -m benchmarks.finetuning.finetune_results table /tmp/results

`run OUTPUT cola rte` runs only those.

`run` resumes: results in OUTPUT/BACKEND.jsonl with the current settings are reused. The backends run in parallel, one
core each.
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

from benchmarks.finetuning.finetune_cases import CASES, PRECISION

ROOT = Path(__file__).parents[2]
BACKENDS = {"bert-tfx": (".venv", "finetune_bert_tfx"), "transformers": (".venv-bench", "finetune_transformers")}
# Cases whose scores have a floor come first.
ORDER = ("sts-b", "mrpc", "sst-2", "rte", "cola", "wnut17", "squad1.1")


def run(output: str, *cases: str) -> None:
    """Append one line per run to `OUTPUT/BACKEND.jsonl`; all cases by default."""
    Path(output).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(BACKENDS)) as pool:
        for done in [pool.submit(run_backend, output, backend, cases or ORDER) for backend in BACKENDS]:
            done.result()


def run_backend(output: str, backend: str, cases: Sequence[str]) -> None:
    """Run all cases on one backend, each in a separate process."""
    environment, program = BACKENDS[backend]
    for seed in sorted({seed for case in CASES.values() for seed in case.seeds}):
        for case in cases:
            if seed not in CASES[case].seeds or (case, seed) in read(output, backend):
                continue
            print(f"{backend} {case} seed {seed}", flush=True)
            words = ["-m", f"benchmarks.finetuning.{program}", case, "--seed", str(seed), "--threads", "1"]
            command = [str(ROOT / environment / "bin/python"), *words]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
            line = done.stdout.splitlines()[-1]
            json.loads(line)
            with open(Path(output) / f"{backend}.jsonl", "a", encoding="utf-8") as file:
                file.write(line + "\n")


def read(output: str, backend: str) -> dict[tuple[str, int], dict]:
    """The runs of a backend with the current settings, by case and seed."""
    path = Path(output) / f"{backend}.jsonl"
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
    """The table in Markdown: mean and deviation over the seeds, and whether the difference is within noise."""
    runs = {backend: read(output, backend) for backend in BACKENDS}
    print("| task | score | bert-tfx | transformers | difference | allowed | CPU minutes a run |")
    print("|---|---|---|---|---|---|---|")
    for case in ORDER:
        pair = [
            [runs[name][case, seed] for seed in CASES[case].seeds if (case, seed) in runs[name]] for name in BACKENDS
        ]
        if not all(pair):
            continue
        for metric in pair[0][0]["metrics"]:
            values = [[run["metrics"][metric] for run in backend_runs] for backend_runs in pair]
            difference = mean(values[0]) - mean(values[1])
            allowed = max(1.0, pooled_deviation(*values))
            minutes = " : ".join(
                f"{mean(run['cpu_seconds'] for run in backend_runs) / 60:.1f}" for backend_runs in pair
            )
            cells = [f"{mean(v):.2f} ± {stdev(v):.2f} ({len(v)})" if len(v) > 1 else f"{v[0]:.2f} (1)" for v in values]
            print(f"| {case} | {metric} | {' | '.join(cells)} | {difference:+.2f} | {allowed:.2f} | {minutes} |")


def pooled_deviation(first: list[float], second: list[float]) -> float:
    """The pooled deviation of two samples; 0 if neither has two values."""
    samples = [sample for sample in (first, second) if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in samples)
    return math.sqrt(sum((len(s) - 1) * stdev(s) ** 2 for s in samples) / freedom) if freedom else 0.0


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
