"""The questions for a GPU that whole trainings answer, by `bert-tfx train` itself; and what every question has."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.model.bench_model import Case

Answer = dict[str, Any]  # `measured` is what the table shows


@dataclasses.dataclass(frozen=True)
class Given:
    """The inputs of a question: examples, the folder of results, seconds, and whether it is a trial on a CPU.

    `work` is a folder of trainings, common to the questions of a call.
    """

    examples: str
    out: Path
    seconds: float
    small: bool
    work: Path = Path(tempfile.gettempdir()) / "bert-tfx-gpu"

    def case(self, size: str = "base", rows: str = "full", dropout: float = 0.0, batch: int = 64) -> Case:
        """A batch of 64 x 512 for BERT-base, or the few of a trial."""
        if self.small:
            size, batch = {"base": "tiny", "modern": "modern_tiny"}[size], 4
        length = 32 if self.small else 512
        return Case(size, length, batch, "bfloat16", rows, attention_dropout=dropout)


def train(given: Given, folder: Path, settings: dict[str, Any], killed_at: int = 0, **environment: str) -> Path:
    """`bert-tfx train` on JAX; the folder of its checkpoints and log. `killed_at`: kill -9 after this step's record."""
    words = [f"--set={name}={value}" for name, value in {"training.backend": "jax", **settings}.items()]
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", "train", "tiny_cpu"]
    command += ["--examples", given.examples, "--output", str(folder), *words]
    child = subprocess.Popen(command, env={**os.environ, **environment}, stdout=sys.stderr)
    while killed_at and child.poll() is None:
        if last_step(folder) >= killed_at:
            child.send_signal(signal.SIGKILL)
        time.sleep(0.001)
    if child.wait() not in ((-signal.SIGKILL,) if killed_at else (0,)):
        raise RuntimeError(f"bert-tfx train in {folder} ended with {child.returncode}")
    (training,) = (folder / "training").iterdir()
    return training


def records(training: Path, kind: str) -> list[Answer]:
    """The log's records of a kind; what follows the last end of a line is not complete."""
    read = map(json.loads, (training / "log.jsonl").read_text().split("\n")[:-1])
    return [record for record in read if record["kind"] == kind]


def last_step(folder: Path) -> int:
    logs = list(folder.glob("training/*/log.jsonl"))
    return max((record["step"] for record in records(logs[0].parent, "train")), default=0) if logs else 0


def hundred_steps(given: Given) -> dict[str, Any]:
    """Settings of a training of 100 steps in float32, saved each 50."""
    small = {"model.hidden_size": 32, "model.intermediate_size": 64, "model.num_hidden_layers": 1}
    return {
        **(small if given.small else {}),
        "model.max_position_embeddings": 512,
        "training.train_batch_size": 16,
        "training.eval_batch_size": 16,
        "training.eval_batches": 2,
        "training.num_train_steps": 100,
        "training.num_warmup_steps": 10,
        "training.steps_per_execution": 2,
        "training.save_checkpoints_steps": 50,
        "training.eval_every_steps": 100,
    }


def log(given: Given) -> Answer:
    """The largest difference of the losses, which are means of two steps, from those of the CPU of this machine."""
    settings = hundred_steps(given)
    losses = [
        [record["loss"] for record in records(train(given, given.work / name, settings, **variables), "train")]
        for name, variables in (("cpu", {"JAX_PLATFORMS": "cpu"}), ("whole", {}))
    ]
    gaps = np.abs(np.subtract(*losses))
    shown = f"{gaps.max():.1e} at most, {gaps[:10].max():.1e} in the first 20 steps; loss {losses[0][-1]:.3f}"
    return {"measured": shown, "cpu": losses[0], "device": losses[1]}


def resume(given: Given) -> Answer:
    """Killed at step 60 and resumed at 50, against a run that was not: bits of weights and optimizer, and of losses."""
    flags = {"": "", "deterministic ": "--xla_gpu_deterministic_ops=true"}
    answers = []
    for name, flag in flags.items():
        variables = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()} if flag else {}
        folders = [given.work / f"{name}{kind}" for kind in ("whole", "killed")]
        settings = hundred_steps(given)
        whole = train(given, folders[0], settings, **variables)  # that of `log`, if it is there
        train(given, folders[1], settings, killed_at=60, **variables)
        killed = train(given, folders[1], settings, **variables)
        ours, theirs = (np.load(path / "checkpoints" / "ckpt-100.npz") for path in (whole, killed))
        differ = [array for array in ours.files if not np.array_equal(ours[array], theirs[array])]
        losses = [[record["loss"] for record in records(path, "train")] for path in (whole, killed)]
        equal = not differ and losses[0] == losses[1]
        answers.append(name + ("bits equal" if equal else f"{len(differ)} of {len(ours.files)} arrays differ"))
        if equal:
            break
    return {"measured": "; ".join(answers), "equal": equal}


def curve(given: Given) -> Answer:
    """`bert-tfx train` in bfloat16, as many steps as fit: the curve of held-out losses."""
    shape = (2, 64, 1, 256, 8) if given.small else (6, 512, 8, 2048, 64)
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    settings: dict[str, Any] = {f"model.{name}": value for name, value in zip(names, shape, strict=False)}
    settings |= {
        "model.max_position_embeddings": 512,
        "training.train_batch_size": shape[-1],
        "training.learning_rate": 2e-3,
        "training.mixed_precision": "mixed_bfloat16",
        "training.eval_every_steps": 20 if given.small else 200,
        "training.keep_checkpoint_max": 1,
    }
    if given.small:
        settings |= {"training.num_train_steps": 60, "training.num_warmup_steps": 6}
    else:
        settings["training.budget"] = f"{round(given.seconds - 45)}s"
    training = train(given, given.work / "curve", settings)
    held_out = {record["step"]: round(record["loss"], 4) for record in records(training, "eval")}
    last = records(training, "train")[-1]
    some = list(held_out.items())[:: max(1, len(held_out) // 6)]
    shown = f"{last['step']} steps, {last['useful_tokens_per_second']:,.0f} useful tokens/s; held-out loss "
    shown += ", ".join(f"{loss:.2f} ({step})" for step, loss in some)
    return {"measured": shown, "held_out": held_out, "last": last}
