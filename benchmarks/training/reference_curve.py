"""The reference curve: a mini BERT on the demo's text, here and in torch, with the same weights and examples.

    make demo
    .venv/bin/bert-tfx examples --corpus 'runs/demo/corpus/*.txt' --output /tmp/ref/examples --vocab-size 8000 \\
        --max-seq-length 64 --set examples.masking.max_predictions_per_seq=10
    .venv-bench/bin/python -m benchmarks.training.reference_curve train bert-tfx /tmp/ref/examples /tmp/ref
    .venv-bench/bin/python -m benchmarks.training.reference_curve train torch /tmp/ref/examples /tmp/ref
    .venv-bench/bin/python -m benchmarks.training.reference_curve draw /tmp/ref

`draw` writes reference_curve.svg and the table of reference_curve.md beside this file. Both programs read the same
batches and have the same schedule and optimizer (the original's Adam). There is no dropout, because two programs cannot
have the same random masks. A truncated log is drawn up to its end.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

STEPS, BATCH, EVERY, EVAL_EVERY = 3000, 32, 20, 250
SEED = 12345  # of weights, and of the order of the examples
HERE = Path(__file__).parent


def model_config(vocab_size: int):
    from bert_keras.models.config import BertConfig

    return BertConfig.size(
        4,
        256,
        vocab_size=vocab_size,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def training_config(seed: int):
    from bert_keras.training.config import TrainingConfig

    return TrainingConfig(
        train_batch_size=BATCH,
        num_train_steps=STEPS,
        num_warmup_steps=STEPS // 10,
        learning_rate=4e-4,
        steps_per_execution=EVERY,
        eval_every_steps=EVAL_EVERY,
        save_checkpoints_steps=STEPS,
        eval_batches=16,
        jit_compile=True,
        seed=seed,
    )


def train(program: str, examples_dir: str, output: str) -> None:
    """Write `OUTPUT/PROGRAM-SEED/log.jsonl`, in the format of the training loop."""
    from bert_keras.training.phases import ExampleSet

    of_program = {"bert-tfx": train_here, "torch": train_torch}[program]
    of_program(ExampleSet.load(examples_dir), SEED, os.path.join(output, f"{program}-{SEED}"))


def train_here(examples, seed: int, directory: str) -> None:
    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.objectives.mlm_nsp import OBJECTIVE
    from bert_keras.training.config import SecondPhase
    from bert_keras.training.loop import TrainingLoop
    from bert_keras.training.phases import phases_of

    config = training_config(seed)

    def create_model():
        model = BertForPreTraining(model_config(examples.spec.vocab_size), seed=seed)
        model.build()
        return model

    TrainingLoop(create_model, OBJECTIVE, config, phases_of(config, SecondPhase(), [examples]), directory).run()


def train_torch(examples, seed: int, directory: str) -> None:
    import torch
    import transformers

    from bert_keras.convert.huggingface import write_huggingface
    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.training.optimizer import create_schedule

    config = training_config(seed)
    bert = BertForPreTraining(model_config(examples.spec.vocab_size), seed=seed)
    bert.build()
    with tempfile.TemporaryDirectory() as folder:
        write_huggingface(bert, None, folder)
        model = transformers.AutoModelForPreTraining.from_pretrained(folder)
    torch.manual_seed(seed)
    schedule = create_schedule(config)
    optimizer = BertAdam(model, config)
    batches = examples.train_batches(batch_size=BATCH, first_example=0, seed=seed).as_numpy_iterator()
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "log.jsonl"), "w", encoding="utf-8") as log:
        sums: list[dict[str, float]] = []
        for step in range(1, STEPS + 1):
            model.train()
            loss, counted = loss_and_sums(torch, model, next(batches))
            model.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            optimizer.step(float(schedule(step - 1)))
            sums.append(counted)
            if step % EVERY == 0:
                write(log, "train", step, sums)
                sums = []
            if step % EVAL_EVERY == 0:
                model.eval()
                held_out = examples.eval_batches(config.eval_batch_size)
                with torch.no_grad():
                    found = [
                        loss_and_sums(torch, model, batch)[1]
                        for batch in held_out.take(config.eval_batches).as_numpy_iterator()
                    ]
                write(log, "eval", step, found)


class BertAdam:
    """The original's Adam (optimization.py) for torch: no bias correction; no decay of biases and norms."""

    def __init__(self, model, config):
        self.config = config
        self.weights = []
        for name, weight in model.named_parameters():
            decay = 0.0 if "bias" in name or "LayerNorm" in name else config.weight_decay
            self.weights.append((weight, decay, weight.detach() * 0.0, weight.detach() * 0.0))

    def step(self, rate: float) -> None:
        c = self.config
        for weight, decay, m, v in self.weights:
            if weight.grad is None:
                continue
            m.mul_(c.beta_1).add_(weight.grad, alpha=1 - c.beta_1)
            v.mul_(c.beta_2).addcmul_(weight.grad, weight.grad, value=1 - c.beta_2)
            weight.data -= rate * (m / (v.sqrt() + c.epsilon) + decay * weight.data)


def loss_and_sums(torch, model, batch) -> tuple[Any, dict[str, float]]:
    """The loss of a batch, with masked tokens gathered before the output matrix, and the training loop's sums."""
    batch = {name: torch.from_numpy(value) for name, value in batch.items()}
    sequence, pooled = model.bert(batch["input_ids"], batch["input_mask"], batch["segment_ids"], return_dict=False)[:2]
    rows, slots = batch["masked_lm_weights"].nonzero(as_tuple=True)
    logits = model.cls.predictions(sequence[rows, batch["masked_lm_positions"][rows, slots].long()])
    ids, labels = batch["masked_lm_ids"][rows, slots].long(), batch["next_sentence_labels"][:, 0].long()
    nsp_logits = model.cls.seq_relationship(pooled)
    mlm = torch.nn.functional.cross_entropy(logits, ids, reduction="sum")
    nsp = torch.nn.functional.cross_entropy(nsp_logits, labels, reduction="sum")
    sums = {
        "mlm_nll": float(mlm),
        "mlm_correct": float((logits.argmax(-1) == ids).sum()),
        "mlm_weight": len(ids),
        "nsp_nll": float(nsp),
        "nsp_correct": float((nsp_logits.argmax(-1) == labels).sum()),
        "nsp_weight": len(labels),
    }
    return mlm / len(ids) + nsp / len(labels), sums


def write(log, kind: str, step: int, sums: list[dict[str, float]]) -> None:
    from bert_keras.objectives.mlm_nsp import metrics_of

    total = {name: math.fsum(s[name] for s in sums) for name in sums[0]}
    log.write(json.dumps({"kind": kind, "step": step, **metrics_of(total)}) + "\n")
    log.flush()


# ---------------------------------------------------------------------- the picture


def read(path: Path) -> Iterator[dict]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def draw(output: str) -> None:
    """Draw reference_curve.svg; print the table."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "reference"
    from matplotlib import pyplot

    runs = {program: [*read(Path(output) / f"{program}-{SEED}" / "log.jsonl")] for program in ("bert-tfx", "torch")}
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    titles = {"mlm_loss": "Masked-LM loss, nats", "mlm_accuracy": "Masked-LM accuracy", "nsp_accuracy": "NSP accuracy"}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for (name, log), style in zip(runs.items(), ("-", "--"), strict=True):
            points = [(line["step"], line[key]) for line in log if line["kind"] == "eval"]
            axis.plot(*zip(*points, strict=True), style, marker="o", markersize=3, label=name)
        axis.set(title=f"{title}, held out", xlabel="step")
    axes[0].legend()
    figure.savefig(HERE / "reference_curve.svg", metadata={"Date": None, "Creator": None})
    names = list(runs)
    print("| step | " + " | ".join(f"{name}: MLM loss, accuracy, NSP" for name in names) + " |")
    print("|---" * (len(names) + 1) + "|")
    tables = [{line["step"]: line for line in runs[name] if line["kind"] == "eval"} for name in names]
    for step in tables[0]:
        lines = [table.get(step) for table in tables]
        cells = [f"{x['mlm_loss']:.4f}, {x['mlm_accuracy']:.2%}, {x['nsp_accuracy']:.2%}" if x else "" for x in lines]
        print(f"| {step} | " + " | ".join(cells) + " |")
    print(json.dumps({"model": asdict(model_config(8000)), "training": asdict(training_config(SEED))}, indent=1))


if __name__ == "__main__":
    {"train": train, "draw": draw}[sys.argv[1]](*sys.argv[2:])
