"""Compare the scores of a fine-tuned model by engine: TensorFlow and ONNX Runtime in float32, OpenVINO in int8.

    python -m benchmarks.serving.engine_scores MODEL ROWS

MODEL is a folder that `bert-tfx finetune` pushed; ROWS is its TaskExampleGen's output: int8 is calibrated on rows of
`Split-train`, and all are scored on `Split-eval`. The standard error of a score, and of its difference to TensorFlow's,
is that of 300 samples of the rows with replacement.
"""

from __future__ import annotations

import argparse
import glob
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_keras.data.tfrecord import read_records
from bert_keras.tasks.answers import parse_answers
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow, read_rows

_BATCH, _SAMPLES, _CALIBRATION_ROWS = 16, 300, 2000


def examples_of(rows: str, split: str) -> list[bytes]:
    """The serialized rows of a split."""
    records: list[bytes] = []
    for path in sorted(glob.glob(f"{rows}/Split-{split}/*")):
        with open(path, "rb") as file:
            records += read_records(file)
    return records


def answers_of(evaluate: Callable[..., dict[str, Any]], examples: list[bytes]) -> list[bytes]:
    """The answers to rows by a signature `evaluate`."""
    import tensorflow as tf

    answers: list[bytes] = []
    for first in range(0, len(examples), _BATCH):
        answers += evaluate(examples=tf.constant(examples[first : first + _BATCH]))["answer"].numpy().tolist()
    return answers


def main() -> None:
    """Print a line for each engine and score."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers ops that the graph may contain

    from bert_keras.convert.formats import read_folder
    from bert_keras.convert.onnx.folder import write_onnx
    from bert_keras.convert.onnx.int8 import quantize_folder
    from components.evaluator.engine_model import EngineModel

    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("rows")
    args = parser.parse_args()
    examples = examples_of(args.rows, "eval")
    golds = [row.gold for row in read_rows(examples)]
    folder = read_folder(args.model, None, "bert-tfx")
    task = folder.task
    assert task is not None, f"{args.model} is no model of a task"
    loaded = tf.saved_model.load(args.model)
    with tempfile.TemporaryDirectory() as work:
        write_onnx(folder, f"{work}/float32", "none")
        shutil.copytree(f"{work}/float32", f"{work}/int8")
        train: list[TaskRow] = list(read_rows(examples_of(args.rows, "train")[:_CALIBRATION_ROWS]))
        print(quantize_folder(f"{work}/int8", [row.inputs for row in train]), file=sys.stderr)
        engines = {
            "tensorflow float32": loaded.signatures["evaluate"],
            "onnxruntime float32": EngineModel(f"{work}/float32").signatures["evaluate"],
            "openvino int8": EngineModel(f"{work}/int8").signatures["evaluate"],
        }
        answers = {
            name: parse_answers(task.kind, golds, answers_of(evaluate, examples)) for name, evaluate in engines.items()
        }
    samples = np.random.default_rng(0).integers(0, len(golds), (_SAMPLES, len(golds)))
    first = next(iter(answers.values()))
    for name, given in answers.items():
        drawn = [
            [score(task, [golds[i] for i in rows], [by[i] for i in rows]) for rows in samples] for by in (given, first)
        ]
        for metric, value in score(task, golds, given).items():
            values, base = (np.array([scores[metric] for scores in side]) for side in drawn)
            print(
                f"{name:20} {metric:12} {value:8.4f} +- {values.std():.4f}  difference +- {(values - base).std():.4f}"
            )


if __name__ == "__main__":
    main()
