"""Fine-tune a case of finetune_cases.py with this project, for comparison with finetune_transformers.py.

    BERT_DATA_DIR=../shared/data .venv/bin/python -m benchmarks.finetuning.finetune_bert_tfx mrpc --seed 1

prints one JSON object, as finetune_transformers.py: metrics in per cent, seconds and CPU seconds from reading the
data to the last answer, settings.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.finetuning.finetune_cases import (
    CASES,
    EVAL_BATCH_SIZE,
    case_rows,
    report_of,
    run_command,
    training_config,
    weights_directory,
    write_case,
)

# Settings of a case that fine-tuning has under the same names.
_SAME = ("train_batch_size", "learning_rate", "schedule", "optimizer", "epsilon", "weight_decay", "clip_norm")


def run(name: str, seed: int) -> dict[str, Any]:
    """Fine-tune and test; return the report."""
    import keras
    import tensorflow as tf

    from bert_keras.finetuning.init_checkpoint import InitCheckpoint
    from bert_keras.finetuning.training import TrainedTask, fine_tune
    from bert_keras.tasks.metrics.scores import score
    from bert_keras.tasks.settings import FineTuningConfig
    from bert_keras.training.log import LOG_FILE

    case = CASES[name]
    with tempfile.TemporaryDirectory() as directory:
        write_case(name, directory)
        task, train_rows, test_rows = case_rows(name, directory)
        wanted = training_config(case, len(train_rows), seed)
        config = FineTuningConfig(
            num_train_epochs=case.epochs,
            **{name: getattr(wanted, name) for name in (*_SAME, "mixed_precision", "seed")},
            # Training alone is timed: no evaluation on the way.
            eval_every_steps=wanted.num_train_steps,
            eval_batches=1,
            save_checkpoints_steps=wanted.num_train_steps,
        )
        start = InitCheckpoint.read(weights_directory())
        model = fine_tune(
            task, case.task_settings, config, start, train_rows, test_rows, os.path.join(directory, "run")
        )
        train_loss = mean_train_loss(Path(directory, "run", LOG_FILE))
        trained = TrainedTask(model, task, case.task_settings, start.tokenizer)
        answers = trained.answers(test_rows, EVAL_BATCH_SIZE)
    scores = score(task, [row.gold for row in test_rows], answers)
    percent = 1 if task.kind == "span" else 100
    return report_of(
        name,
        wanted,
        {metric: percent * scores[metric] for metric in task.metrics},
        (train_rows, test_rows),
        train_loss=round(train_loss, 4),
        versions={"tensorflow": tf.__version__, "keras": keras.__version__},
    )


def mean_train_loss(log: Path) -> float:
    """The mean over all steps; a record has the mean of the steps since the previous record."""
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps, losses = zip(
        *((record["step"], record["loss"]) for record in records if record["kind"] == "train"), strict=True
    )
    return float(np.average(losses, weights=np.diff([0, *steps])))


def set_threads(threads: int) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


if __name__ == "__main__":
    run_command(__doc__, run, set_threads)
