"""Does continued pre-training pay? Fine-tune models that differ only in their pre-training on a few hundred rows.

    BERT_DATA_DIR=DATA .venv/bin/python -m benchmarks.finetuning.continued_models run OUTPUT NAME=FOLDER ...
    .venv/bin/python -m benchmarks.finetuning.continued_models table OUTPUT

`run` appends a JSON line per model, task and seed to OUTPUT/scores.jsonl, and skips those that are there. `table` has
the mean and standard deviation over the seeds, and each model's difference to the first one with its standard error; a
seed has the same rows, order and initial output layer for each model.

Tasks: `imdb`, `ag-news`, `wnut17`, and `libraries`: which of 20 Python libraries does this sentence of a docstring come
from? Its documents are not in the corpus of `pipeline.examples.demo_corpus`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.finetuning.finetune_cases import EVAL_BATCH_SIZE, PRECISION, SAMPLE_SEED
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import Task, task_of
from components.task_example_gen.readers import read_rows

SEEDS = (1, 2, 3, 4, 5)


@dataclasses.dataclass(frozen=True)
class Rows:
    """A task and the numbers of its rows.

    Attributes:
        task: name of the task (`bert_keras.tasks.table`).
        train, test: numbers of rows, drawn from all.
        source: their file, in BERT_DATA_DIR; "" for `libraries`, which are made.
        test_source: the file of the test rows; "": those of `source` that are not for training.
    """

    task: str
    train: int
    test: int
    source: str = ""
    test_source: str = ""
    task_settings: TaskSettings = dataclasses.field(default_factory=TaskSettings)


TASKS = {
    "imdb": Rows(
        "imdb", 400, 1000, "imdb/aclImdb_train_0_1500.tar.gz", task_settings=TaskSettings(truncation="head_tail")
    ),
    "ag-news": Rows("ag-news", 400, 1000, "agnews/dev.tsv"),
    "wnut17": Rows("ner", 1000, 1009, "wnut17/wnut17train.conll", "wnut17/emerging.dev.conll"),
    "libraries": Rows("text", 800, 1000),
}
LIBRARIES = 20
CONFIG = FineTuningConfig(
    num_train_epochs=4,
    train_batch_size=16,
    learning_rate=3e-4,
    schedule="linear",
    optimizer="adamw",
    mixed_precision=PRECISION,
    # Training alone is timed: no evaluation on the way.
    eval_every_steps=10**6,
    eval_batches=1,
    save_checkpoints_steps=10**6,
)


def rows_of(name: str) -> tuple[Task, list[TaskRow], list[TaskRow]]:
    """The task with its labels, its training rows and its test rows; the same for each model and seed."""
    rows, task = TASKS[name], task_of(TASKS[name].task)
    with tempfile.TemporaryDirectory() as folder:
        if rows.source:
            sources = [
                Path(os.environ["BERT_DATA_DIR"], source) for source in (rows.source, rows.test_source) if source
            ]
        else:
            sources = [Path(folder, "libraries.csv")]
            sources[0].write_text(_libraries(), encoding="utf-8")
        found = [list(read_rows(task, str(source))) for source in sources]
    # RandomState, because NumPy guarantees its stream.
    draw = np.random.RandomState(SAMPLE_SEED)
    train, *test = [[part[i] for i in draw.permutation(len(part))] for part in found]
    train, test = train[: rows.train], (test[0] if test else train[rows.train :])[: rows.test]
    if not task.labels:
        golds = {gold for row in train for gold in (row.gold if task.kind == "tagging" else [row.gold])}
        task = dataclasses.replace(task, labels=tuple(sorted(golds)))
    return task, train, test


def _libraries() -> str:
    """CSV of sentences and their library, as many of each of the LIBRARIES with most sentences."""
    from pipeline.examples.demo_corpus import CORPUS_BYTES, write_docstring_corpus
    from pipeline.examples.demo_corpus import LIBRARIES as CANDIDATES

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "corpus.txt")
        write_docstring_corpus(path, CORPUS_BYTES)
        known = set(Path(path).read_text(encoding="utf-8").split("\n\n"))
    sentences = {library: sorted(set(_sentences(library, known))) for library in CANDIDATES}
    chosen = sorted(sentences, key=lambda library: -len(sentences[library]))[:LIBRARIES]
    rows = TASKS["libraries"]
    each = (rows.train + rows.test) // LIBRARIES
    draw, text = np.random.RandomState(SAMPLE_SEED), io.StringIO()
    table = csv.writer(text)
    table.writerow(["text", "label"])
    for library in sorted(chosen):
        found = sentences[library]
        if len(found) < each:
            raise SystemExit(f"{library} has {len(found)} sentences, not {each}")
        table.writerows((found[i], library) for i in draw.permutation(len(found))[:each])
    return text.getvalue()


def _sentences(library: str, known: set[str]) -> Iterator[str]:
    from sentencex import segment

    from pipeline.examples.demo_corpus import docstrings

    for path in sorted((Path(sysconfig.get_paths()["purelib"]) / library).rglob("*.py")):
        for text in docstrings(path).values():
            if text not in known:
                yield from (s.strip() for s in segment("en", text.replace("\n", " ")) if 6 <= len(s.split()) <= 40)


def run(output: str, *models: str) -> None:
    """Fine-tune each model (NAME=FOLDER) on each task with each seed."""
    import keras

    from bert_keras.finetuning.init_checkpoint import InitCheckpoint
    from bert_keras.finetuning.training import TrainedTask, fine_tune
    from bert_keras.tasks.metrics.scores import score

    Path(output).mkdir(parents=True, exist_ok=True)
    path = Path(output, "scores.jsonl")
    data = {name: rows_of(name) for name in TASKS}
    for seed in SEEDS:
        for name, (task, train, test) in data.items():
            for model_name, folder in (word.split("=", 1) for word in models):
                if (model_name, name, seed) in {(r["model"], r["task"], r["seed"]) for r in read(output)}:
                    continue
                keras.utils.clear_session()
                started, settings = time.process_time(), TASKS[name].task_settings
                with tempfile.TemporaryDirectory() as scratch:
                    start = InitCheckpoint.read(folder)
                    config = dataclasses.replace(CONFIG, seed=seed)
                    model = fine_tune(task, settings, config, start, train, test, os.path.join(scratch, "run"))
                answers = TrainedTask(model, task, settings, start.tokenizer).answers(test, EVAL_BATCH_SIZE)
                value = 100 * score(task, [row.gold for row in test], answers)[task.metrics[0]]
                line = {"model": model_name, "task": name, "seed": seed, "metric": task.metrics[0], "score": value}
                line["cpu_seconds"] = round(time.process_time() - started, 1)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


def read(output: str) -> list[dict]:
    """The runs that are finished."""
    path = Path(output, "scores.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def table(output: str) -> None:
    """The table in Markdown; differences are to the first model, by seed."""
    runs = read(output)
    models = list(dict.fromkeys(found["model"] for found in runs))
    print("| task | score |", " | ".join(models), "|", " | ".join(f"{name} - {models[0]}" for name in models[1:]), "|")
    print("|---" * (1 + len(models) * 2), "|", sep="")
    for task in TASKS:
        scores = {m: {r["seed"]: r["score"] for r in runs if (r["model"], r["task"]) == (m, task)} for m in models}
        cells = [f"{mean(v.values()):.1f} ± {stdev(v.values()):.1f} ({len(v)})" for v in scores.values()]
        for name in models[1:]:
            first, second = scores[models[0]], scores[name]
            gains = [second[seed] - first[seed] for seed in sorted(first.keys() & second.keys())]
            cells.append(f"{mean(gains):+.1f} (standard error {stdev(gains) / math.sqrt(len(gains)):.1f})")
        metric = next(found["metric"] for found in runs if found["task"] == task)
        print(f"| {task} | {metric} |", " | ".join(cells), "|")


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
