"""Benchmark of training and inference of BERT, against `transformers` on torch, keras-hub, and the machine's peak.

    PYTHONPATH=$PWD .venv-bench/bin/python -m benchmarks.model.bench_model  # everything: about an hour
    PYTHONPATH=$PWD .venv-bench/bin/python -m benchmarks.model.bench_model train --size mini --precision float32
    PYTHONPATH=$PWD .venv-bench/bin/python -m benchmarks.model.bench_model --quick  # a minute
    KERAS_BACKEND=jax PYTHONPATH=$PWD .venv-bench/bin/python -m benchmarks.model.bench_model jax  # a GPU, or --quick

Contestants take turns (`harness.py`); every round gives a ratio of bert-tfx to each; printed are the median of the
ratios and, in brackets, minimum and maximum. CPU seconds are those of all threads of a contestant during its steps,
without start, compilation and warm-up. On a busy machine only they are comparable, and even they suffer from threads
that wait by spinning (torch's).

The floor of a step is its matrix products at the rate of a large one (`matmul`, in each round); the share is the
floor's part of the step's time: see `Case.step_flops`.

Experiments (default: train and infer; with KERAS_BACKEND=jax, jax):
    train      a training step with NSP, logits of masked tokens: forward, backward, clipping, optimizer
    infer      those logits
    jax        bert-tfx and keras-hub on JAX: base at 128, 512 and 4,096 with and without dropout of the attention,
               the modern encoder at 512 and 4,096, large at 512, packed rows against padded ones; the rate of the
               machine is that of its GPU, if it has one. Set XLA_PYTHON_CLIENT_PREALLOCATE=false: contestants share it
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import typer

from benchmarks.harness.harness import BATCH, MACHINE, OURS, Bench, Contestant
from benchmarks.model.model_config import Case
from benchmarks.model.model_implementations import CONTESTANTS

GPU_BATCH = {
    ("base", 128): 256,
    ("base", 512): 64,
    ("base", 4096): 4,
    ("modern", 512): 64,
    ("modern", 4096): 8,
    ("large", 512): 32,
}


def ours_over(contestant: Contestant, by_name: dict[str, Contestant]) -> tuple[Contestant, Contestant] | None:
    return (by_name[OURS], contestant) if OURS in by_name and contestant.name != OURS else None


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[EXPERIMENT]...", help="train, infer, jax.")] = None,
    size: Annotated[list[str] | None, typer.Option(help="mini, base; jax: base, modern, large.")] = None,
    length: Annotated[list[int] | None, typer.Option(help="128, 512; jax: 4096, too.")] = None,
    precision: Annotated[list[str], typer.Option(help="float32, bfloat16.")] = ["float32", "bfloat16"],  # noqa: B006
    contestant: Annotated[list[str] | None, typer.Option(help="All, if none is named.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each contestant has its turn.")] = 7,
    seconds: Annotated[float, typer.Option(help="CPU seconds of a turn, about.")] = 4.0,
    quick: Annotated[bool, typer.Option(help="mini at 128, float32, fewer contestants and rounds.")] = False,
) -> None:
    """Measure; print tables and a line of JSON."""
    on_jax = os.environ.get("KERAS_BACKEND") == "jax"
    bench = Bench(3 if quick else rounds, 1.0 if quick else seconds, ours_over, "bert-tfx is")
    left_out = ("mirrored", *(("XLA", "compiled") if quick else ()))
    chosen = contestant or [name for name in CONTESTANTS if not name.endswith(left_out)]
    for experiment in names or (["jax"] if on_jax else ["train"] if quick else ["train", "infer"]):
        if experiment == "jax":
            chosen = contestant or [OURS, "keras-hub", MACHINE]
            cases = [
                case
                for case in _jax_cases(quick)
                if quick or (case.size in (size or [case.size]) and case.length in (length or [case.length]))
            ]
        else:
            shapes = [(s, n) for s in size or ("mini", "base") for n in length or (128, 512)]
            shapes = [("mini", 128)] if quick else shapes
            precisions = precision if not quick else ["float32"]
            cases = [Case(s, n, BATCH[s, n], p, experiment) for s, n in shapes for p in precisions]
        for case in cases:
            # keras-hub cannot train on packed rows, and the others have no `modern`.
            alone = case.rows == "packed" or case.size == "modern"
            names_of_case = [n for n in chosen if not alone or n.startswith((OURS, MACHINE))]
            bench.compare(f"{experiment}: {case}", [(name, case) for name in names_of_case])
    bench.print()


def _jax_cases(quick: bool) -> Iterable[Case]:
    if quick:
        yield from (Case("mini", 128, 8, "float32", rows=rows) for rows in ("full", "padded", "packed"))
        return
    for (size, length), batch in GPU_BATCH.items():
        dropouts = (0.0,) if size == "modern" else (0.1, 0.0)
        yield from (Case(size, length, batch, "bfloat16", attention_dropout=dropout) for dropout in dropouts)
    for rows in ("padded", "packed"):
        yield Case("base", 512, GPU_BATCH["base", 512], "bfloat16", rows=rows)


if __name__ == "__main__":
    typer.run(main)
