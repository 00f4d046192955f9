"""Texts a core-second: `bert-tfx apply`, the embedded server and a plain loop, with one model in one process.

    python -m benchmarks.serving.bench_apply MODEL TEXTS.jsonl --signature embed --texts 16384 --rounds 3 \\
        --engine-folder FLOAT32 --engine-folder INT8

MODEL is a SavedModel. Of folders of `convert --to onnx` only `apply` is measured, with the cosine of `embedding` to the
first one's.

CPU seconds of this process from the kernel, models loaded before; the server's clients run in another one. Sides take
turns.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# Rows of the loop without batches: each costs twice as much.
_FEWER = 4
CLIENTS, ROWS = 4, 32


def ask(address: str, signature: str, path: str) -> None:
    """Send the file's texts to a server, in requests of `ROWS` from `CLIENTS` threads."""
    from concurrent.futures import ThreadPoolExecutor

    from serving.client import Client

    texts = [json.loads(line)["text"] for line in Path(path).read_text().splitlines()]
    with Client(address) as client, ThreadPoolExecutor(CLIENTS) as pool:
        requests = [texts[start : start + ROWS] for start in range(0, len(texts), ROWS)]
        list(pool.map(lambda request: client.predict({"text": request}, signature), requests))


def sides(model: str, folders: list[str], signature: str, path: str, count: int) -> dict[str, Callable[[], int]]:
    """Each side by name: answers all texts of the file, or fewer, and returns how many."""
    import tensorflow as tf

    from pipeline.apply.handler import ShardHandler
    from pipeline.apply.row_model import RowModel, find_model, load
    from pipeline.apply.run import apply
    from serving.server import Server

    texts = [json.loads(line)["text"] for line in Path(path).read_text().splitlines()]
    models = {folder: RowModel(load(find_model(folder, "auto"), "auto"), signature) for folder in (model, *folders)}
    ShardHandler.load_model = lambda self: models[self._folder_of_model]  # type: ignore[method-assign, attr-defined]
    rows = [{"text": text} for text in texts]
    vectors = [np.array([row["embedding"] for row in models[folder].answers(rows)]) for folder in folders]  # type: ignore[index]
    for folder, given in zip(folders, vectors, strict=True):
        norms = np.linalg.norm(given, axis=1) * np.linalg.norm(vectors[0], axis=1)
        cosines = (given * vectors[0]).sum(1) / norms
        print(f"{folder}: cosine to the first, mean {cosines.mean():.5f}, least {cosines.min():.5f}")
    function = tf.saved_model.load(find_model(model, "tensorflow")).signatures[signature]
    server = Server(Path(model), grpc_port=0, rest_port=0)
    server.start()
    assert server.wait_until_available(600)

    def applied(*beam_args: str, folder: str = model) -> int:
        ShardHandler._folder_of_model = folder  # type: ignore[attr-defined]
        with tempfile.TemporaryDirectory() as output:
            figures = apply(
                folder,
                [path],
                f"{output}/out",
                signature=signature,
                engine="auto",
                columns=[],
                keep=[],
                beam_args=beam_args,
            )
        return figures["rows"]

    def looped(rows: int, batch: int) -> int:
        for start in range(0, rows, batch):
            {name: value.numpy() for name, value in function(text=tf.constant(texts[start : start + batch])).items()}
        return rows

    def served() -> int:
        address = f"127.0.0.1:{server.grpc_port}"
        words = [sys.executable, "-m", "benchmarks.serving.bench_apply", address, path, "--signature", signature]
        subprocess.run([*words, "--ask"], check=True)
        return count

    return {
        "apply, one worker": applied,
        **{f"apply, {folder}": functools.partial(applied, folder=folder) for folder in folders},
        "apply, two workers": lambda: applied("--direct_num_workers=2", "--direct_running_mode=multi_threading"),
        f"server, {CLIENTS} clients of {ROWS} texts": served,
        "loop over single texts": lambda: looped(count // _FEWER, 1),
        f"loop over {ROWS} texts": lambda: looped(count, ROWS),
    }


def main() -> None:
    """Print a line for each side: texts a core-second, median and range of the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("path")
    parser.add_argument("--engine-folder", action="append", default=[])
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--texts", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ask", action="store_true", help="be the clients of the server at MODEL")
    args = parser.parse_args()
    if args.ask:
        ask(args.model, args.signature, args.path)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/texts.jsonl"
        lines = Path(args.path).read_text().splitlines(keepends=True)[: args.texts]
        Path(path).write_text("".join(lines))
        contestants = sides(args.model, args.engine_folder, args.signature, path, len(lines))
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(args.rounds + 1):
            for name, run in contestants.items():
                began = time.process_time()
                rate = run() / (time.process_time() - began)
                if turn:  # the first one warms up
                    rates[name].append(rate)
                    print(f"{name}: {rate:.0f}", file=sys.stderr, flush=True)
    for name, values in rates.items():
        low, high = np.min(values), np.max(values)
        print(f"{name:32} {statistics.median(values):6.0f}  [{low:.0f} - {high:.0f}]")


if __name__ == "__main__":
    main()
