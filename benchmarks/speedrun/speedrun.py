"""The speedrun: core-seconds until a model knows held-out text as well as the best one of the demo.

    make demo
    .venv/bin/python -m benchmarks.speedrun.speedrun run EXAMPLES OUT --name demo --target 3.83 --seeds 1 2 3 4 5
    .venv/bin/python -m benchmarks.speedrun.speedrun run EXAMPLES OUT --name adamw --target 3.83 --seeds 1 2 3 4 5 \\
        --set training.optimizer=adamw --set training.learning_rate=4e-3
    .venv/bin/python -m benchmarks.speedrun.speedrun table OUT --reference demo --target 3.83
    benchmarks/speedrun/h100.sh EXAMPLES OUT

EXAMPLES is the demo's artifact of PretrainExampleGen (runs/demo/artifacts/PretrainExampleGen/examples/N). `run` trains
`tiny_cpu`, or another recipe, on one core for each seed and writes OUT/NAME-SEED.json; two at a time on two cores.
The loss is that of the first 512 held-out rows (`training.eval_batches`). Core-seconds are those of the process:
imports, tracing and compiling count, the held-out evaluations do not. With `--elapsed`, for a GPU, they are seconds
since the process began, and one seed trains at a time, on all cores.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import psutil


def train(args: argparse.Namespace) -> None:
    """Train one seed on this process's cores, and write the curve: step, seconds, held-out masked-LM loss."""
    from bert_keras import pretraining
    from bert_keras.jobs import PretrainJob
    from bert_keras.training.loop import TrainingLoop
    from pipeline.recipes.pretraining import recipe_of
    from pipeline.recipes.settings import with_settings

    (seed,) = args.seeds
    recipe = with_settings(recipe_of(args.recipe), [*args.settings, f"training.seed={seed}"])
    steps = recipe.training.num_train_steps
    config = dataclasses.replace(recipe.training, eval_every_steps=args.every, save_checkpoints_steps=steps)
    curve: list[tuple[int, float, float]] = []
    began = psutil.Process().create_time()
    seconds = (lambda: time.time() - began) if args.elapsed else time.process_time

    class Finished(Exception):
        """The target or the last step is reached; nothing is exported."""

    class Timed(TrainingLoop):
        """Adds its evaluations to the curve."""

        evaluating = 0.0

        def evaluate(self, phase):
            started = seconds()
            loss = super().evaluate(phase)["mlm_loss"]
            curve.append((self.steps.step, started - self.evaluating, loss))
            self.evaluating += seconds() - started
            print(f"{args.name}-{seed}", *(f"{value:.3f}" for value in curve[-1]), flush=True)
            if loss <= args.target or curve[-1][0] == steps:
                raise Finished
            return {}

    pretraining.TrainingLoop = Timed
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Finished):
        pretraining.pretrain(
            PretrainJob(
                examples=(args.examples,),
                model=recipe.model,
                training=config,
                pretraining=recipe.pretraining,
                **{name: f"{folder}/{name}" for name in ("output_dir", "logs_dir", "training_root")},
            )
        )
    fields = {"name": args.name, "seed": seed, "settings": args.settings, "curve": curve, "target": args.target}
    path = pathlib.Path(args.output, f"{args.name}-{seed}.json")
    path.with_suffix(".tmp").write_text(json.dumps(fields) + "\n")
    path.with_suffix(".tmp").rename(path)


def run(args: argparse.Namespace) -> None:
    """Train every seed in a process of its own, one a core; one at a time with `--elapsed`."""
    os.makedirs(args.output, exist_ok=True)
    waiting = [seed for seed in args.seeds if not os.path.exists(f"{args.output}/{args.name}-{seed}.json")]
    allowed = sorted(args.cores or os.sched_getaffinity(0))
    places = [tuple(allowed)] if args.elapsed else [(core,) for core in allowed]
    running: dict[tuple[int, ...], subprocess.Popen] = {}
    while waiting or running:
        free = [cores for cores in places if cores not in running]
        for cores in free[: len(waiting)]:
            words = [*sys.argv[1:], "--seeds", str(waiting.pop(0)), "--here"]
            command = [sys.executable, "-m", "benchmarks.speedrun.speedrun", *words]
            running[cores] = subprocess.Popen(command, preexec_fn=lambda cores=cores: os.sched_setaffinity(0, cores))
        time.sleep(1)
        for cores, process in list(running.items()):
            if process.poll() is not None:
                del running[cores]
                if process.returncode:
                    sys.exit(f"{args.name}: a seed failed")


def core_seconds(curve: list[list[float]], target: float) -> float:
    """Core-seconds to the target, interpolated between the evaluations around it; infinite if it was not reached."""
    for (_, before, high), (_, after, low) in itertools.pairwise(curve):
        if low <= target:
            return after - (after - before) * (target - low) / max(high - low, 1e-9)
    return math.inf


def table(args: argparse.Namespace) -> None:
    """Print each name's core-seconds to the target: mean, spread over the seeds, and ratio to the reference."""
    by_name: dict[str, list[dict]] = {}
    for path in sorted(pathlib.Path(args.output).glob("*-*.json")):
        fields = json.loads(path.read_text())
        by_name.setdefault(fields["name"], []).append(fields)
    seconds = {name: [core_seconds(f["curve"], args.target) for f in runs] for name, runs in by_name.items()}
    reference = statistics.mean(seconds[args.reference]) if args.reference in seconds else math.nan
    print("| name | seeds that reached it | core-seconds (least to most) | ratio | last loss | settings |")
    print("|---" * 6 + "|")
    for name in sorted(seconds, key=lambda name: statistics.mean(seconds[name])):
        values, runs = seconds[name], by_name[name]
        mean, last = statistics.mean(values), statistics.mean(run["curve"][-1][2] for run in runs)
        print(
            f"| {name} | {sum(map(math.isfinite, values))} of {len(values)} | {mean:.0f} ({min(values):.0f} to "
            f"{max(values):.0f}) | {mean / reference:.2f} | {last:.3f} | {' '.join(runs[0]['settings'])} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.set_defaults(command=lambda args: train(args) if args.here else run(args))
    runs.add_argument("examples")
    runs.add_argument("output")
    runs.add_argument("--name", required=True)
    runs.add_argument("--recipe", default="tiny_cpu")
    runs.add_argument("--set", dest="settings", action="append", default=[])
    runs.add_argument("--seeds", type=int, nargs="+", default=[1])
    runs.add_argument("--cores", type=int, nargs="+", default=[])
    runs.add_argument("--every", type=int, default=100, help="steps between two evaluations")
    runs.add_argument("--elapsed", action="store_true", help="for a GPU: elapsed seconds, one seed at a time")
    runs.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    tables = commands.add_parser("table")
    tables.set_defaults(command=table)
    tables.add_argument("output")
    tables.add_argument("--reference", default="demo")
    for command in (runs, tables):
        command.add_argument("--target", type=float, default=0.0, help="held-out masked-LM loss")
    args = parser.parse_args()
    args.command(args)


if __name__ == "__main__":
    main()
