"""Training on JAX on one GPU: exactness, speed, and what the host costs. gpu.md says how to carry, run and read it.

    python -m benchmarks.gpu.gpu EXAMPLES OUT                        # ten minutes: a table, OUT/results.jsonl
    python -m benchmarks.gpu.gpu EXAMPLES OUT --only packed          # one question
    JAX_PLATFORMS=cpu python -m benchmarks.gpu.gpu EXAMPLES OUT --small     # on a CPU, in three minutes

EXAMPLES is a folder of `bert-tfx examples`. Each question is a process of its own, so one that fails, or takes too
long, costs only itself; OUT/NAME.log has what it printed. All run the product's own code.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.gpu.trainings import Answer, Given, curve, log, resume
from benchmarks.model.bench_model import SIZES, Case, matrix_products, product_steps, seconds_a_step

# The peak of an H100 in bfloat16, in FLOP/s: NVIDIA's data sheet, without sparsity.
PEAK = 989e12
# Seconds that are kept for the last question.
LAST_SECONDS = 90.0
FLOAT32_PRODUCTS = {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}
SHARED_MEMORY, ALL_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92"}
# What a trial leaves out: other questions run the same code.
NOT_SMALL = ("full", "rematerialize", "largest")


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, what was hoped for, its seconds at most, its answer, and environment variables of its process."""

    text: str
    target: str
    seconds: float
    answer: Callable[[Given], Answer]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


def machine(given: Given) -> Answer:
    import jax
    import keras

    run, flops = matrix_products("bfloat16")
    run(2)
    rate = flops / statistics.median(seconds_a_step(run, 5)[1] for _ in range(3))
    versions = f"JAX {jax.__version__}, Keras {keras.__version__}, NumPy {np.__version__}"
    return {"measured": f"{jax.devices()[0].device_kind}, {versions}: {rate / 1e12:.1f} TFLOP/s", "flops": rate}


@functools.cache
def dump_folder() -> Path:
    """Return the folder where XLA writes this process' programs; they tell whether attention is one kernel."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    # Read when the devices are opened.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder} --xla_dump_hlo_as_text"
    return Path(folder)


def speed(given: Given, case: Case, **settings: Any) -> Answer:
    """Median of three turns of the product's steps, fed as in its loop; `settings` are of the training."""
    import jax

    folder = dump_folder()
    steps, batches = product_steps(case, **settings)
    run = lambda count: steps(batches, count)  # noqa: E731
    run(3)
    turns = [seconds_a_step(run, 2 if given.small else 20)[1] for _ in range(3)]
    programs = [path.read_text() for path in folder.glob("*after_optimizations.txt")]
    kernels = max(text.count('custom_call_target="__cudnn$fmha') for text in programs)
    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    useful = int(case.inputs()["input_mask"].sum())
    return {**rates(case, useful, turns), "attention_kernels": kernels, "peak_bytes": memory}


def rates(case: Case, useful: int, turns: list[float]) -> Answer:
    """Rates of a step with `useful` tokens from the seconds of a step in each turn."""
    seconds = statistics.median(turns)
    tokens, share = useful / seconds, case.flops() / seconds / PEAK
    return {
        "measured": f"{1000 * seconds:.1f} ms, {tokens:,.0f} useful tokens/s, {share:.1%} of 989 TFLOP/s",
        "rows": case.batch,
        "useful_tokens_s": tokens,
        "share_of_peak": share,
        "turns_ms": [1000 * turn for turn in turns],
    }


def largest(given: Given, batches: tuple[int, ...], **settings: Any) -> Answer:
    """The first of these batches that fits."""
    refused = []
    for batch in batches:
        try:
            answer = speed(given, given.case(batch=batch), **settings)
        except Exception as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            refused.append(batch)
            continue
        return {**answer, "measured": f"{answer['rows']} rows: {answer['measured']}", "refused": refused}
    return {"measured": f"none of {batches} rows fits", "refused": refused}


def peer(given: Given) -> Answer:
    """The same model and batch in `transformers`, compiled by torch, with logits of the masked tokens alone."""
    import torch
    import transformers

    case = given.case()
    layers, width = SIZES[case.size]
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        attention_probs_dropout_prob=0.0,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.BertForPreTraining._from_config(config, attn_implementation="sdpa").to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=device == "cuda")
    batch = {name: torch.from_numpy(values).to(device) for name, values in case.inputs().items()}
    long = {name: values.long() for name, values in batch.items() if name != "masked_lm_weights"}

    def loss_of(tensors, weights):
        encoded = model.bert(tensors["input_ids"], tensors["input_mask"], tensors["segment_ids"])
        places = tensors["masked_lm_positions"][..., None].expand(-1, -1, width)
        logits = model.cls.predictions(encoded.last_hidden_state.gather(1, places)).float()
        pairs = model.cls.seq_relationship(encoded.pooler_output).float()
        nll = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tensors["masked_lm_ids"].flatten(), reduction="none"
        )
        masked = (nll * weights.flatten()).sum() / weights.sum()
        return masked + torch.nn.functional.cross_entropy(pairs, tensors["next_sentence_labels"].flatten())

    compiled = torch.compile(loss_of)

    def run(count: int) -> float:
        for _ in range(count):
            with torch.autocast(device, torch.bfloat16):
                loss = compiled(long, batch["masked_lm_weights"])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())  # waits for the device

    run(3)
    turns = [seconds_a_step(run, 2 if given.small else 20)[1] for _ in range(3)]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {**rates(case, int(case.inputs()["input_mask"].sum()), turns), **versions}


def precision(given: Given) -> Answer:
    """Relative error in bfloat16 of each variable's gradient: the optimizer's mean after one step, times a factor."""
    import jax

    gradients, losses, paths = [], [], []
    for precision in ("float32", "bfloat16"):
        jax.config.update("jax_default_matmul_precision", "highest" if precision == "float32" else None)
        case = dataclasses.replace(given.case(batch=16), precision=precision)
        # Not clipped, so that the factor is the same.
        steps, batches = product_steps(case, clip_norm=1e9)
        sums, _ = steps(batches, 1)
        losses.append(sums["mlm_nll"] / sums["mlm_weight"])
        arrays = steps.arrays()
        gradients.append([array for name, array in arrays.items() if name.endswith("/momentum")])
        paths = [variable.path.partition("/")[2] for variable in steps.model.trainable_variables]
    errors = {
        path: float(np.linalg.norm(rough - exact) / max(np.linalg.norm(exact), 1e-30))
        for path, exact, rough in zip(paths, *gradients, strict=True)
    }
    # The gradient of the keys' biases is zero: they add the same to all scores of a query.
    errors = {path: error for path, error in errors.items() if not path.endswith("key/bias")}
    worst = max(errors, key=errors.__getitem__)
    bias = next(path for path in paths if path.endswith("output_bias"))
    shown = f"loss {abs(losses[1] - losses[0]):.1e} off; gradients {statistics.median(errors.values()):.1e} (median)"
    shown += f", {bias} {errors[bias]:.1e}, {worst} {errors[worst]:.1e} (worst)"
    return {"measured": shown, "losses": losses, "errors": errors}


def host(given: Given) -> Answer:
    """Measure the time that the loop waits for the product's reader, which masks anew, and a batch's time alone."""
    from bert_keras.data.example_format import ExampleSpec
    from bert_keras.data.masking import MaskingVocabulary
    from bert_keras.data.tfrecord_batches import DynamicMasking
    from bert_keras.objectives.registry import pretraining_model
    from bert_keras.objectives.settings import PretrainingSettings
    from bert_keras.pretraining import load_tokenizer
    from bert_keras.training.config import TrainingConfig
    from bert_keras.training.loop import TrainingLoop
    from bert_keras.training.phases import ExampleSet, Phase

    spec, case = ExampleSpec.load(given.examples), given.case()
    masking = None
    if spec.masking.when == "dynamic":
        masking = DynamicMasking(spec.masking, MaskingVocabulary.of(load_tokenizer(given.examples, spec)))
    examples = ExampleSet.load(given.examples, masking)
    model = dataclasses.replace(case.config(), vocab_size=spec.vocab_size)
    create_model, objective = pretraining_model(PretrainingSettings(), spec.objective, model, 0)
    config = TrainingConfig(train_batch_size=case.batch, mixed_precision="mixed_bfloat16", backend="jax")
    phase, count = Phase(examples, 0, config.num_train_steps, case.batch, 0), 4 if given.small else 60
    alone = phase.train_batches(0, 0)
    next(alone)
    reading = statistics.median(seconds_a_step(lambda n: [next(alone) for _ in range(n)], count)[1] for _ in range(3))
    steps = TrainingLoop(create_model, objective, config, [phase], "no folder").steps
    waits: list[float] = []

    def timed(batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            started = time.perf_counter()
            batch = next(batches)
            waits.append(time.perf_counter() - started)
            yield batch

    batches = timed(steps.feed(phase, 0))
    steps(batches, 5)
    waits.clear()
    started = time.perf_counter()
    steps(batches, count)
    seconds = time.perf_counter() - started
    shown = f"{sum(waits) / seconds:.1%} of {1000 * seconds / count:.1f} ms a step"
    shown += f"; a batch alone {1000 * reading:.1f} ms"
    return {"measured": shown, "waited": sum(waits), "seconds": seconds, "batch_seconds": reading}


EXACT = {**FLOAT32_PRODUCTS, **SHARED_MEMORY}
QUESTIONS = {
    "machine": Question("A product of 8,192 in bfloat16", "610 was measured", 60, machine),
    "packed": Question(
        "base, 64 x 512, packed rows",
        "650,000 tokens/s, 40 % (stretch: 750,000)",
        100,
        lambda given: speed(given, given.case(rows="packed")),
    ),
    "full": Question("a sequence a row", "level with transformers", 100, lambda given: speed(given, given.case())),
    "transformers": Question("transformers, compiled by torch", "501,000 was measured", 120, peer),
    "dropout": Question(
        "attention dropout 0.1", "450,000 (was 343,000)", 100, lambda given: speed(given, given.case(dropout=0.1))
    ),
    "log": Question("100 steps in float32 against this CPU", "1e-5", 120, log, EXACT),
    "resume": Question("kill -9 and resume", "bits equal", 150, resume, EXACT),
    "precision": Question("bfloat16 against float32, 16 rows", "loss 3e-4, output bias 1e-2", 100, precision),
    "host": Question("the loop waits for the reader", "below 5 %", 100, host),
    "modern": Question(
        "modern_base, 64 x 512", "400,000 (was 315,000)", 100, lambda given: speed(given, given.case("modern"))
    ),
    "rematerialize": Question(
        "base, rematerialize", "a third more time", 100, lambda given: speed(given, given.case(), rematerialize=True)
    ),
    "largest": Question("base, most rows", "none", 100, lambda given: largest(given, (384, 320, 256, 192)), ALL_MEMORY),
    "largest_again": Question(
        "base, most rows, rematerialize",
        "none",
        100,
        lambda given: largest(given, (1024, 768, 512, 384), rematerialize=True),
        ALL_MEMORY,
    ),
    "curve": Question("`bert-tfx train` for the time that is left", "the loss falls", 600, curve),
}


def ask(name: str, given: Given) -> Answer:
    """The answer of a process of its own; `error` if it fails or takes longer than its time."""
    question, file = QUESTIONS[name], given.out / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks.gpu.gpu", given.examples, str(given.out), "--answer", name]
    command += ["--seconds", str(given.seconds), *["--small"] * given.small]
    file.unlink(missing_ok=True)
    with open(given.out / f"{name}.log", "w") as output:
        child = subprocess.Popen(
            command,
            env={**os.environ, "KERAS_BACKEND": "jax", **question.environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            child.wait(given.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return {"error": f"not in {given.seconds:.0f} s"}
    if file.exists():
        return json.loads(file.read_text())
    lines = (given.out / f"{name}.log").read_text().strip().splitlines()
    reasons = [line for line in lines if line.startswith("bert-tfx: ")][-1:] + lines[-1:]
    return {"error": f"ended with {child.returncode}: {'; '.join(reasons)[:400]}"}


def main(
    examples: str,
    out: Path,
    seconds: Annotated[float, typer.Option(help="Of all questions.")] = 570.0,
    small: Annotated[bool, typer.Option(help="A trial on a CPU.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="A question; repeatable.")] = None,
    answer: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Ask all questions, or some, and print a table in Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    if answer:
        found = QUESTIONS[answer].answer(Given(examples, out, seconds, small))
        (out / f"{answer}.json").write_text(json.dumps(found))
        return
    shutil.rmtree(Given.work, ignore_errors=True)
    (out / "results.jsonl").unlink(missing_ok=True)
    ends = time.monotonic() + seconds
    print("| question | measured | target | seconds |\n|---|---|---|---|", flush=True)
    for name in only or [name for name in QUESTIONS if not (small and name in NOT_SMALL)]:
        started = time.monotonic()
        rest = ends - started - (LAST_SECONDS if name != "curve" and not only else 0)
        limit = min(rest, QUESTIONS[name].seconds * (4 if small else 1))
        result = ask(name, Given(examples, out, limit, small)) if limit > 15 else {"error": "no time was left"}
        took, question = time.monotonic() - started, QUESTIONS[name]
        with open(out / "results.jsonl", "a") as file:
            file.write(json.dumps({"question": name, "seconds": round(took, 1), **result}) + "\n")
        shown = result.get("measured") or f"**{result['error']}**"
        print(f"| {question.text} | {shown} | {question.target} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
