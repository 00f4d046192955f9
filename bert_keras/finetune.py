"""The Trainer component's entry point for tasks: rows in, a fine-tuned, scored and exported model out."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_keras.config import ExportSettings
from bert_keras.run_folder import copy_logs
from bert_keras.strategy import create_strategy
from bert_keras.tasks.experiment import read_experiment, read_spec
from bert_keras.tasks.kinds import kind_of
from bert_keras.tasks.predictions import official_name, write_predictions
from bert_keras.tasks.restarts import train_restarts
from bert_keras.tasks.results import PREDICTIONS_FOLDER, RESTARTS_FILE, SCORES_FILE
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.scores import score
from bert_keras.tasks.served import export_task_model, served_task_model
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings
from bert_keras.tasks.span_answers import n_best_predictions, span_answers
from bert_keras.tasks.squad_predictions import write_details
from bert_keras.tasks.training import TrainedTask
from bert_keras.training_log import TrainingLog


def run_fn(fn_args) -> None:
    """Fine-tunes on the rows beside `fn_args.train_files` and exports to `fn_args.serving_model_dir`.

    `fn_args.custom_config` holds
        task, task_settings, training, restarts, export: a task's name, fields of `TaskSettings`, of `FineTuningConfig`,
            of `RestartSettings` and of `ExportSettings`;
        init: the folder of a model (`bert_keras.tasks.start`), and `cased` (None: as it says); or "", and then `model`,
            fields of `BertConfig`, and `vocabulary`, the folder of a `vocab.txt` and its spec: all weights are drawn;
        training_root: as of `bert_keras.pretrain.run_fn`.
    `fn_args.hyperparameters` is what a search found (`bert_keras.tasks.search`), in place of those of `training`; or
    None. All splits but the training rows are answered: scores (`SCORES_FILE`) and official prediction files go to
    `fn_args.model_run_dir`, the scores of `eval` to the log too; so do the scores of all seeds (`RESTARTS_FILE`).

    Raises:
        InputError: rows, settings and encoder do not fit each other.
    """
    custom = fn_args.custom_config
    config = FineTuningConfig(**custom["training"])
    if fn_args.hyperparameters:
        config = dataclasses.replace(config, **fn_args.hyperparameters["values"])
    training = config.training_config(read_spec(fn_args)[1].counts["train"])
    # Before anything else runs: several workers are refused afterwards.
    strategy = create_strategy(training)
    experiment = read_experiment(fn_args)
    chosen = train_restarts(experiment, config, RestartSettings(**custom["restarts"]), strategy)
    if chosen is None:
        return
    # What is scored is what is served.
    export = ExportSettings(**custom.get("export", {}))
    trained = dataclasses.replace(chosen.trained, model=served_task_model(chosen.trained.model, export.precision))
    predictions = os.path.join(fn_args.model_run_dir, PREDICTIONS_FOLDER)
    scores: dict[str, dict[str, float]] = {}
    for split, rows in experiment.rows.items():
        if split != "train" and rows:
            found = answer(trained, rows, config.eval_batch_size, os.path.join(predictions, split), split)
            scores |= {split: found} if found else {}
    directory = experiment.folder(chosen.config)
    log = TrainingLog(directory, training.num_train_steps)
    log.write("eval", training.num_train_steps, {f"official_{name}": value for name, value in scores["eval"].items()})
    copy_logs(directory, fn_args.model_run_dir)
    for name, figures in {SCORES_FILE: scores, RESTARTS_FILE: chosen.report}.items():
        with tf.io.gfile.GFile(os.path.join(fn_args.model_run_dir, name), "w") as file:
            file.write(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    export_task_model(
        trained.model, trained.task, trained.settings, trained.tokenizer, fn_args.serving_model_dir, export
    )


def answer(
    trained: TrainedTask, rows: Sequence[TaskRow], batch_size: int, folder: str, split: str
) -> dict[str, float] | None:
    """Writes the answers to rows into `folder`, in the official formats; returns their scores if golds are known.

    Of spans also the best answers of each question and, of SQuAD 2.0, the null odds (`bert_keras.tasks.predictions`):
    its scores then tell the best thresholds too.
    """
    task, settings = trained.task, trained.settings
    outputs, features = trained.outputs(rows, batch_size)
    null_odds = None
    if task.kind == "span":
        found = span_answers(outputs, features, rows, task, settings)
        answers: list[Any] = [one.text for one in found]
        null_odds = [one.null_score_difference for one in found] if task.unanswerable else None
        n_best = n_best_predictions(rows, found)
        write_details(rows, folder, [n_best[row.row_id] for row in rows], null_odds)
    else:
        answers = kind_of(task).answers(outputs, features, rows, task, settings)
    write_predictions(task, rows, answers, os.path.join(folder, official_name(task, split)))
    return None if rows[0].gold is None else score(task, [row.gold for row in rows], answers, null_odds)
