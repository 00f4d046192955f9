"""Benchmark of pre-training BERT, against `transformers` on torch: useful tokens per core-second on equal batches.

    PYTHONPATH=$PWD .venv-bench/bin/python -m benchmarks.training.bench_training  # everything: about 25 minutes
    ... -m benchmarks.training.bench_training --size mini --length 512 --precision float32

Rows hold one sequence of 16 tokens up to the length, all lengths equally often (padded), or as many such sequences as
fit (packed). Useful tokens are those that are not padding. bert-tfx is the product's `TrainSteps` under
`create_strategy`, compiled as in its loop: with XLA (`training.jit_compile`) and without, on one device and mirrored
over two logical ones, which share the cores. torch is `BertForPreTraining`, eager, with vocabulary logits for masked
tokens only and fused AdamW; it trains on the padded rows, because it does not support packing.

Contestants take turns (`harness.py`); every round gives a ratio to torch; printed are the median and, in brackets,
minimum and maximum. CPU seconds are those of all threads. The share is the part of the floor, a step's matrix products
(`Case.step_flops`) at the rate of a large one, measured in each round.
"""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.harness.harness import BATCH, MACHINE, OURS, Bench, Contestant
from benchmarks.model.model_config import Case

TORCH = "transformers, gathered"
# Variants of this project and their rows, and how many run at a time beside torch: at 512 one of base takes 6 GB.
VARIANTS = {
    "mini": ((OURS, "padded"), (OURS, "packed"), (f"{OURS}, XLA", "padded"), (f"{OURS}, mirrored", "padded")),
    "base": ((OURS, "padded"), (OURS, "packed"), (f"{OURS}, XLA", "padded")),
}
AT_A_TIME = {"mini": 4, "base": 1}
# Turns of each, and CPU seconds of one, about; a step of base takes more than one.
ROUNDS, SECONDS = {"mini": 5, "base": 3}, {"mini": 1.5, "base": 1.0}


def over_torch(contestant: Contestant, by_name: dict[str, Contestant]) -> tuple[Contestant, Contestant] | None:
    return (contestant, by_name[TORCH]) if TORCH in by_name and contestant.name != TORCH else None


def main(
    size: Annotated[list[str], typer.Option(help="mini, base.")] = ["mini", "base"],  # noqa: B006
    length: Annotated[list[int], typer.Option(help="128, 512.")] = [128, 512],  # noqa: B006
    precision: Annotated[list[str], typer.Option(help="float32, bfloat16.")] = ["float32", "bfloat16"],  # noqa: B006
) -> None:
    """Measure; print tables, and a line of JSON for each."""
    for s in size:
        bench = Bench(ROUNDS[s], SECONDS[s], over_torch, "times torch's useful tokens")
        for p in precision:
            for n in length:
                for first in range(0, len(VARIANTS[s]), AT_A_TIME[s]):
                    chosen = VARIANTS[s][first : first + AT_A_TIME[s]]
                    entries = ((TORCH, "padded"), *chosen, (MACHINE, "padded"))
                    cases = [(name, Case(s, n, BATCH[s, n], p, rows=rows)) for name, rows in entries]
                    bench.compare(f"train: {s}, {BATCH[s, n]} rows of {n}, {p}", cases)
        bench.print()


if __name__ == "__main__":
    typer.run(main)
