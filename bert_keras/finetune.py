"""The Trainer component's entry point for tasks: rows in, a fine-tuned, scored and exported model out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.features import read_vocabulary
from bert_keras.input_pipeline import shard_files
from bert_keras.run_folder import copy_logs, run_folder
from bert_keras.strategy import create_strategy, worker_number
from bert_keras.tasks.predictions import official_name, write_predictions
from bert_keras.tasks.rows import TaskRow, read_rows
from bert_keras.tasks.scores import score
from bert_keras.tasks.served import export_task_model
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings, TaskSpec
from bert_keras.tasks.start import Start, read_start
from bert_keras.tasks.table import Task
from bert_keras.tasks.training import TrainedTask, fine_tune
from bert_keras.tokenizer import BertTokenizer, make_tokenizer
from bert_keras.training_log import TrainingLog

# In the Trainer's `model_run` artifact: the official scores by split and name, and prediction files, a folder a split.
SCORES_FILE = "scores.json"
PREDICTIONS_FOLDER = "predictions"


def run_fn(fn_args) -> None:
    """Fine-tunes on the rows beside `fn_args.train_files` and exports to `fn_args.serving_model_dir`.

    `fn_args.custom_config` holds
        task, task_settings, training: a task's name, fields of `TaskSettings` and of `FineTuningConfig`;
        init: the folder of a model (`bert_keras.tasks.start`), and `cased` (None: as it says); or "", and then `model`,
            fields of `BertConfig`, and `vocabulary`, the folder of a `vocab.txt` and its spec: all weights are drawn;
        training_root: as of `bert_keras.pretrain.run_fn`.
    All splits but the training rows are answered: scores (`SCORES_FILE`) and official prediction files go to
    `fn_args.model_run_dir`, the scores of `eval` to the log too.

    Raises:
        InputError: rows, settings and encoder do not fit each other.
    """
    custom = fn_args.custom_config
    settings, config = TaskSettings(**custom["task_settings"]), FineTuningConfig(**custom["training"])
    examples_dir = os.path.dirname(os.path.dirname(fn_args.train_files[0]))
    spec = TaskSpec.load(examples_dir)
    if spec.task.name != custom["task"]:
        raise InputError(f"{examples_dir} has the rows of {spec.task.name}, not of {custom['task']}: make them again")
    training = config.training_config(spec.counts["train"])
    # Before anything else runs: several workers are refused afterwards.
    strategy = create_strategy(training)
    start = _start(custom)
    rows = {split: _rows(f"{examples_dir}/Split-{split}/*") for split in spec.counts}
    names = ("task", "task_settings", "training", "cased", "model")
    init = [os.path.join(custom[name], "*") for name in ("init", "vocabulary") if custom.get(name)]
    directory = run_folder(
        custom["training_root"],
        {name: custom.get(name) for name in names},
        [f"{examples_dir}/*", f"{examples_dir}/Split-train/*", f"{examples_dir}/Split-eval/*", *init],
    )
    model = fine_tune(spec.task, settings, config, start, rows["train"], rows["eval"], directory, strategy)
    if worker_number(strategy):
        return
    trained = TrainedTask(model, spec.task, settings, start.tokenizer)
    asked = {split: of_split for split, of_split in rows.items() if split != "train" and of_split}
    answers = {split: trained.answers(of_split, config.eval_batch_size) for split, of_split in asked.items()}
    scores = scores_of(spec.task, asked, answers)
    log = TrainingLog(directory, training.num_train_steps)
    log.write("eval", training.num_train_steps, {f"official_{name}": value for name, value in scores["eval"].items()})
    copy_logs(directory, fn_args.model_run_dir)
    with tf.io.gfile.GFile(os.path.join(fn_args.model_run_dir, SCORES_FILE), "w") as file:
        file.write(json.dumps(scores, indent=2, sort_keys=True) + "\n")
    for split, of_split in asked.items():
        path = os.path.join(fn_args.model_run_dir, PREDICTIONS_FOLDER, split, official_name(spec.task, split))
        write_predictions(spec.task, of_split, answers[split], path)
    export_task_model(model, spec.task, settings, start.tokenizer, fn_args.serving_model_dir)


def scores_of(
    task: Task, rows: Mapping[str, Sequence[TaskRow]], answers: Mapping[str, Sequence[Any]]
) -> dict[str, dict[str, float]]:
    """The official scores of each split whose golds are known, by name."""
    return {
        split: score(task, [row.gold for row in of_split], answers[split])
        for split, of_split in rows.items()
        if of_split[0].gold is not None
    }


def _start(custom: Mapping[str, Any]) -> Start:
    if custom["init"]:
        return read_start(custom["init"], custom.get("cased"))
    tokens, vocabulary = read_vocabulary(custom["vocabulary"])
    tokenizer = make_tokenizer(tokens, vocabulary) if vocabulary["algorithm"] == "wordpiece" else None
    if not isinstance(tokenizer, BertTokenizer):
        raise InputError(f"{custom['vocabulary']}: the vocabulary is not of word pieces; a BERT's is")
    return Start(BertConfig(**custom["model"]), tokenizer)


def _rows(pattern: str) -> list[TaskRow]:
    return list(read_rows(tf.data.TFRecordDataset(shard_files(pattern)).as_numpy_iterator()))
