"""Fine-tuning: from rows to a scored and exported model."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from etils import epath

from bert_keras.errors import InputError
from bert_keras.files import json_text
from bert_keras.finetuning import artifact_files
from bert_keras.finetuning.fine_tuner import EVAL, UNLABELLED, FineTuner, read_spec
from bert_keras.finetuning.restarts import train_restarts
from bert_keras.finetuning.search import search
from bert_keras.finetuning.teacher import costs
from bert_keras.finetuning.training import TrainedTask
from bert_keras.jobs import FinetuneJob
from bert_keras.saved_model.task_signatures import export_task_model, served_task_model
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.span.answers import n_best_predictions, span_answers
from bert_keras.tasks.submissions.prediction_files import official_name, write_predictions
from bert_keras.tasks.submissions.squad import write_details
from bert_keras.tasks.task_types import task_type_of
from bert_keras.training.affects import weights_of
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.checkpoint_dir import copy_logs, tell_what_changed
from bert_keras.training.log import TrainingLog


def finetune(job: FinetuneJob) -> None:
    """Fine-tune on `job.rows`, score all other splits, and export the model to `job.output_dir`.

    `job.logs_dir` gets the scores and official prediction files of every split but the training rows, the scores of all
    seeds and those of a search (`artifact_files`), and the log, which has the scores of `eval`. Of several workers the
    first one writes. InputError: rows, settings and initial checkpoint do not fit each other, or a search has several
    workers. StageError: no training of the search ended with a score.
    """
    reports: dict[str, Any] = {}
    if job.search.enabled:
        if job.training.strategy == "multi_worker":
            raise InputError(
                "a search runs in one process, not with training.strategy=multi_worker; search on one machine, then "
                "train on several with --set training.* of its result"
            )
        best, reports[artifact_files.SEARCH_FILE] = search(FineTuner.from_job(job), job.training, job.search)
        job = dataclasses.replace(job, training=best)
    config = job.training
    spec = read_spec(job)
    counts = spec.counts
    training = config.training_config(counts["train"] + counts.get(UNLABELLED, 0))
    # First of all: several workers cannot be set up after other operations.
    devices = open_devices(training)
    tuner = FineTuner.from_job(job)
    folder = tuner.folder(config)
    # After a search the folder of its best training exists.
    if not devices.worker and not epath.Path(folder).exists():
        tell_what_changed(folder, {**weights_of(job), "init": job.init})
    chosen = train_restarts(tuner, config, job.restarts, devices)
    if chosen is None:
        return
    # Score the model in its exported precision.
    trained = dataclasses.replace(chosen.trained, model=served_task_model(chosen.trained.model, job.export.precision))
    predictions = os.path.join(job.logs_dir, artifact_files.PREDICTIONS_FOLDER)
    scores: dict[str, dict[str, float]] = {}
    for split, rows in tuner.rows.items():
        if split != "train" and rows:
            official = answer(trained, rows, config.eval_batch_size, os.path.join(predictions, split), split)
            scores |= {split: official} if official else {}
    directory = tuner.folder(chosen.config)
    log = TrainingLog(directory, training.num_train_steps)
    log.write("eval", training.num_train_steps, {f"official_{name}": value for name, value in scores["eval"].items()})
    copy_logs(directory, job.logs_dir)
    reports |= {artifact_files.SCORES_FILE: scores, artifact_files.RESTARTS_FILE: chosen.report}
    if tuner.teacher:
        reports[artifact_files.TEACHER_FILE] = {
            "scores": tuner.scores(tuner.teacher.trained, config.eval_batch_size),
            "costs": costs({"teacher": tuner.teacher.trained, "model": trained}, tuner.rows[EVAL]),
        }
    for name, figures in reports.items():
        (epath.Path(job.logs_dir) / name).write_text(json_text(figures, indent=2, sort_keys=True) + "\n")
    model = chosen.trained.model
    what = (model, trained.task, trained.settings, trained.tokenizer)
    export_task_model(*what, job.output_dir, job.export, tuner.init.record(), spec.held_out)
    if job.export.engine == "onnx":
        from bert_keras.convert.onnx.folder import write_graph

        write_graph(model, trained.tokenizer, job.output_dir, job.export.embedding, job.export.precision)
    if job.export.quantize == "int8":
        from bert_keras.convert.onnx.int8 import quantize_folder

        quantize_folder(job.output_dir, [row.inputs for row in tuner.rows["train"]])


def answer(
    trained: TrainedTask, rows: Sequence[TaskRow], batch_size: int, folder: str, split: str
) -> dict[str, float] | None:
    """Write the answers to rows into `folder`, in the official formats; return their scores if golds are known.

    For spans also write the best answers of each question and, for SQuAD 2.0, the null odds
    (`bert_keras.tasks.submissions.prediction_files`), from which its scores include the best thresholds.
    """
    task, settings = trained.task, trained.settings
    outputs, features = trained.outputs(rows, batch_size)
    null_odds = None
    if task.kind == "span":
        spans = span_answers(outputs, features, rows, task, settings)
        answers: list[Any] = [span.text for span in spans]
        null_odds = [span.null_score_difference for span in spans] if task.unanswerable else None
        n_best = n_best_predictions(rows, spans)
        write_details(rows, folder, [n_best[row.row_id] for row in rows], null_odds)
    else:
        answers = task_type_of(task).answers(outputs, features, rows, task, settings)
    write_predictions(task, rows, answers, os.path.join(folder, official_name(task, split)))
    return None if rows[0].gold is None else score(task, [row.gold for row in rows], answers, null_odds)
