"""Equality of a fine-tuned model's answers over all interfaces: `serving_endurance.py equality`."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.serving.serving_load import sentences

CLIENTS, BATCH = 16, 32
# Compared outputs, by task type.
NUMBERS = {"classification": "scores", "regression": "score"}

Texts = Mapping[str, Sequence[str]]  # by name of the input
Ask = Callable[[Texts], Mapping[str, Any]]  # outputs by name


def batches(texts: Texts, size: int) -> list[Texts]:
    count = len(next(iter(texts.values())))
    return [{name: of[at : at + size] for name, of in texts.items()} for at in range(0, count, size)]


def answers(ask: Ask, texts: Texts, size: int, output: str, at_once: int = 1) -> np.ndarray:
    """One output for all texts, with `size` texts per request and `at_once` requests at a time."""
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda batch: ask(batch)[output], batches(texts, size)))
    return np.concatenate([np.asarray(part) for part in found])


def over_rest(port: int, output: str) -> Ask:
    """Outputs by column; REST returns a single output without its name."""
    import httpx

    http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)

    def ask(texts: Texts) -> Mapping[str, Any]:
        answer = http.post("/v1/models/bert:predict", json={"inputs": texts})
        found = answer.raise_for_status().json()["outputs"]
        return found if isinstance(found, dict) else {output: found}

    return ask


def in_process(version: Path) -> Ask:
    """The SavedModel loaded in this process."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  the graph's ops

    model = tf.saved_model.load(str(version))
    signature = model.signatures["serving_default"]

    def ask(texts: Texts) -> Mapping[str, Any]:
        found = signature(**{name: tf.constant(of) for name, of in texts.items()})
        return {name: value.numpy() for name, value in found.items() if model}  # which must outlive its signature

    return ask


def of_keras(version: Path, texts: Texts) -> np.ndarray:
    """Outputs of the Keras model with the version's weights, computed as in a run's evaluation."""
    import keras

    from bert_keras.finetuning.init_checkpoint import InitCheckpoint
    from bert_keras.finetuning.prediction import predict
    from bert_keras.tasks.rows import TaskRow
    from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TaskSettings, TaskSpec
    from bert_keras.tasks.task_types import task_type_of

    task, start = TaskSpec.load(str(version)).task, InitCheckpoint.read(str(version))
    settings = TaskSettings(**json.loads((version / TASK_SETTINGS_FILE).read_text()))
    kind = task_type_of(task)
    model = kind.create_model(start.config, task, settings, 0)
    model.build()
    model.load_weights(str(version / "model.weights.h5"))
    rows = [
        TaskRow(str(number), dict(zip(texts, of, strict=True)))
        for number, of in enumerate(zip(*texts.values(), strict=True))
    ]
    outputs = predict(model, kind.features(rows, task, settings, start.tokenizer), BATCH)
    return outputs if task.kind == "regression" else keras.ops.convert_to_numpy(keras.ops.softmax(outputs))


def evaluation(run_dir: Path, version: Path, ask: Ask) -> dict[str, Any]:
    """Compare the answers on the run's evaluation rows with its predictions and scores."""
    from bert_keras.tasks.metrics.scores import score
    from bert_keras.tasks.rows import read_rows
    from bert_keras.tasks.settings import TaskSpec
    from bert_keras.tasks.submissions.prediction_files import read_predictions
    from components.io.tfrecord import read_records

    task = TaskSpec.load(str(version)).task
    summary = json.loads((run_dir / "summary.json").read_text())
    examples = max((run_dir / "artifacts" / "TaskExampleGen" / "examples").iterdir(), key=lambda path: int(path.name))
    rows = []
    for file in sorted((examples / "Split-eval").iterdir()):
        with file.open("rb") as records:
            rows += list(read_rows(read_records(records)))
    texts = {name: [str(row.inputs[name]) for row in rows] for name in rows[0].inputs}
    output = {"classification": "label", "regression": "score"}[task.kind]
    given = answers(ask, texts, 1, output, CLIENTS).tolist()
    if task.kind == "classification":
        given = [label.decode() for label in given]
    written = read_predictions(task, rows, summary["predictions"]["eval"][0])
    scores = score(task, [row.gold for row in rows], given)
    differences = [abs(scores[name] - summary["scores"][name]) for name in scores]
    return {
        "rows": len(rows),
        # Recorded numbers have three decimals and are clipped to the task's range.
        "other_labels": sum(map(str.__ne__, given, written)) if task.kind == "classification" else None,
        "largest_difference_of_scores": max(difference for difference in differences if not math.isnan(difference)),
    }


def equality(
    run_dir: Annotated[Path, typer.Argument(help="Of a finished `bert-tfx finetune` of a task of texts or pairs.")],
    count: Annotated[int, typer.Option("--texts", help="How many.")] = 1000,
) -> None:
    """The largest differences between the answers of gRPC, REST, the SavedModel in Python and the Keras model."""
    from bert_keras.tasks.settings import TaskSpec
    from serving.client import Client
    from serving.server import Server

    base = run_dir / "serving"
    versions = [path for path in base.iterdir() if path.name.isdigit()] if base.is_dir() else []
    if not versions:
        raise typer.BadParameter(f"{base}: no pushed model; give the --run-dir of a bert-tfx finetune that pushed one")
    version = max(versions, key=lambda path: int(path.name))
    task = TaskSpec.load(str(version)).task
    if task.kind not in NUMBERS:
        raise typer.BadParameter(f"{run_dir}: {task.name} is no task of texts or pairs with a label or a number each")
    output, names = NUMBERS[task.kind], ["text", "text_pair"][: 1 + task.pair]
    drawn, origin = sentences(count * len(names))
    texts = {name: drawn[at :: len(names)] for at, name in enumerate(names)}
    with Server(base, grpc_port=0, rest_port=0) as server:
        if not server.wait_until_available(300):
            raise RuntimeError(f"{base}: no version came up in 300 seconds")
        with Client(f"127.0.0.1:{server.grpc_port}") as client:
            found = {
                "grpc": answers(client.predict, texts, 1, output, CLIENTS),
                "rest": answers(over_rest(server.rest_port, output), texts, BATCH, output),
            }
            evaluated = evaluation(run_dir, version, client.predict)
    found["python"] = answers(in_process(version), texts, BATCH, output)
    found["keras"] = of_keras(version, texts)
    differences = {
        f"{one}-{other}": float(np.max(np.abs(found[one] - found[other])))
        for one, other in itertools.combinations(found, 2)
    }
    about = {"task": task.name, "version": int(version.name), "texts": count, "from": origin}
    print(json.dumps({**about, "largest_difference": differences, "evaluation": evaluated}))
