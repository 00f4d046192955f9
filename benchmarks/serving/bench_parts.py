"""CPU milliseconds of one text by part, in both engines: tokenizer and inputs, encoder, head, and the server around.

    PYTHONPATH=$PWD .venv-bench/bin/python -m benchmarks.serving.bench_parts FOLDER --rounds 6

FOLDER is `bench_serving --folder`'s: a model of MiniLM's size and its texts. The first three parts are measured in this
process: computed are the token ids alone, then all to the last layer, then the answer; a part is the difference from
the one before. The server is a process of its own with one client; what its request costs beyond the answer goes to
gRPC, protos, the queue, and threads that wait and wake. Engines and parts take turns; medians over the rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.harness.child import Child
from benchmarks.serving.serving_backends import OURS, OURS_ONNX, score_task
from serving.models.servable import DEFAULT_SIGNATURE, GraphServable

PARTS = ("tokenizer and inputs", "encoder", "head", "server")
Call = Callable[[np.ndarray], Any]  # of texts, object [1]


def tensorflow_calls(servable: GraphServable) -> list[Call]:
    """Calls of the served graph: to the token ids, to the last layer, to the score."""
    from serving.scheduling.batching import callable_of

    graph, session = servable._graph, servable._session
    (score,) = graph.fetches[DEFAULT_SIGNATURE]
    (feed,) = (info.name for info in servable.signature(DEFAULT_SIGNATURE).inputs.values())
    scope = score.name.split("/")[0] + "/"
    operations = [op for op in graph._graph.get_operations() if op.name.startswith(scope)]
    lookup = next(op for op in operations if op.type == "GatherV2" and "/word_embeddings" in op.name)
    last = [op for op in operations if "/output_layer_norm" in op.name and op.type == "AddV2"][-1]
    fetches = [[lookup.inputs[1].name], [last.outputs[0].name], [score.name]]
    return [callable_of(session, names, [feed]) for names in fetches]


def onnx_calls(folder: Path, cores: int) -> list[Call]:
    """The same of ONNX Runtime."""
    from bert_keras.convert.onnx_answers import OnnxModel

    score_task()
    model = OnnxModel(str(folder / OURS_ONNX / "1"), cores)
    answer = model.signatures["serving_default"].answer
    return [model._pack, lambda text: model._run(model._pack(text), "last_hidden_state"), answer]


def cpu_ms(call: Callable[[Any], Any], texts: Sequence[Any]) -> float:
    """CPU milliseconds a text."""
    start = time.process_time()
    for text in texts:
        call(text)
    return 1000 * (time.process_time() - start) / len(texts)


def main(
    folder: Path,
    rounds: Annotated[int, typer.Option(help="How often each part has its turn.")] = 6,
    texts: Annotated[int, typer.Option(help="Texts of a turn.")] = 64,
    seconds: Annotated[float, typer.Option(help="Seconds of a turn of a server.")] = 2.0,
) -> None:
    """Measure; print a table in Markdown."""
    given = [np.array([text.encode()], object) for text in json.loads((folder / "texts.json").read_text())[:texts]]
    cores = json.dumps(sorted(os.sched_getaffinity(0)))
    servable = GraphServable("parts", 1, folder / "saved_model" / "1")  # its session ends with it
    sides = {OURS: tensorflow_calls(servable), OURS_ONNX: onnx_calls(folder, len(json.loads(cores)))}
    found: dict[str, list[list[float]]] = {name: [] for name in sides}
    with contextlib.ExitStack() as stack:

        def start(program: str, *arguments: str) -> tuple[Child, Any]:
            child = Child(f"serving.{program}", *arguments)
            stack.callback(child.stop)
            return child, child.read()

        load, _ = start("serving_load", str(folder / "texts.json"), cores)
        servers = {name: start("serving_backends", name, str(folder), cores) for name in sides}
        for number in range(rounds + 1):
            for name, calls in sides.items():
                sums = [cpu_ms(call, given) for call in calls]
                server, ready = servers[name]
                before = server.ask("cpu")
                turn = load.ask(f"127.0.0.1:{ready['port']}", 1, seconds)
                sums.append(1000 * (server.ask("cpu") - before) / turn["requests"])
                if number:  # the first one warms up
                    found[name].append([one - other for one, other in zip(sums, [0.0, *sums], strict=False)])
    print(f"| CPU ms a text | {' | '.join(PARTS)} | sum |\n|---|" + "---|" * (len(PARTS) + 1))
    for name, turns in found.items():
        medians = [statistics.median(of) for of in zip(*turns, strict=True)]
        print(f"| {name} | {' | '.join(f'{value:.2f}' for value in [*medians, sum(medians)])} |")


if __name__ == "__main__":
    typer.run(main)
