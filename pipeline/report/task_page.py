"""Report page of a fine-tuning."""

import dataclasses
import errno
import glob
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.data.tfrecord import read_records
from bert_keras.finetuning.artifact_files import PREDICTIONS_FOLDER, SCORES_FILE
from bert_keras.tasks.rows import TaskRow, read_rows
from bert_keras.tasks.submissions.prediction_files import official_name, read_written
from bert_keras.tasks.table import Task, task_of
from pipeline import stages
from pipeline.report.base_page import Frame, load, percent
from pipeline.report.base_page import render as render_frame
from pipeline.report.figures import curves
from pipeline.report.figures.tables import Column, Table, confusion, epochs, restarts, search_table, slice_table
from pipeline.report.figures.teacher import comparison
from pipeline.report.figures.wrong_answers import wrong_answers
from pipeline.report.gate import task_gate_rows
from pipeline.report.score_format import figure, score_form
from pipeline.runs.lineage import Run
from pipeline.summaries.task import BATCH, EPOCHS, RATE

TRAIN, EVAL = "train", "eval"
_SPLITS = {
    TRAIN: "Training",
    EVAL: "Held out",
    "eval_mismatched": "Held out, mismatched",
    "test": "Test",
    "test_mismatched": "Test, mismatched",
    "unlabelled": "Labelled by the teacher",
}
SEARCHED = (
    f"The best of the search took the place of {', '.join(f'training.{name}' for name in (BATCH, RATE, EPOCHS))}."
)
# Logged metrics of the task types, beside the loss.
_LOGGED = {"accuracy": "Accuracy", "start_accuracy": "Accuracy of starts", "end_accuracy": "Accuracy of ends"}


def render(run: Run, summary: Mapping[str, Any], run_dir: str, baseline: Mapping[str, float] | None) -> str:
    """Render the page's HTML."""
    task = dataclasses.replace(task_of(summary["task"]), labels=tuple(summary["labels"]))
    forms = {name: score_form(task.kind, name) for name in task.metrics}
    metric, *_ = task.metrics
    model_run = run.output(stages.TRAINER, stages.MODEL_RUN).uri
    examples = run.output(stages.TASK_EXAMPLE_GEN, stages.EXAMPLES).uri
    log = curves.read_log(model_run)
    steps = max(line["step"] for line in log)
    rows, answers = _answered(task, examples, model_run)
    logged = {name for line in log for name in line}
    accuracies = [curves.Curve(name, title, curves.percent) for name, title in _LOGGED.items() if name in logged]
    count = f"{summary['rows'][EVAL]:,}"
    searched = None if summary["search"] is None else search_table(summary["search"], forms[metric])
    frame = Frame(
        gate_rows=task_gate_rows(summary, metric, forms[metric], baseline),
        judged_on=f"{count} held-out rows",
        pictures=curves.pictures(log, [curves.Curve("loss", "Loss", curves.plain), *accuracies]),
        evaluations=_evaluations(curves.held_out(log), task),
        slices=slice_table(
            summary,
            "Rows",
            "Lengths are in tokens, of all texts of a row before truncation.",
            {name: Column(form.title, form.number) for name, form in forms.items()},
        ),
        settings_note=SEARCHED if searched else "",
    )
    return render_frame(
        "task.html",
        run,
        summary,
        run_dir,
        frame,
        cards=[
            (form.title, form.number(summary["scores"][name]), form.note.format(rows=count))
            for name, form in forms.items()
        ],
        learned=_learned(summary, steps),
        figures=_figures(task, load(model_run, SCORES_FILE)),
        splits=_splits(run, summary),
        restarts=restarts(summary["restarts"], forms),
        search=searched,
        teacher=comparison(summary, forms[metric]),
        wrong=wrong_answers(task, rows, answers),
        confusion=confusion(task.labels, [row.gold for row in rows], answers)
        if task.kind == "classification"
        else None,
    )


def _answered(task: Task, examples: str, model_run: str) -> tuple[list[TaskRow], list[Any]]:
    """The stored held-out rows, and their answers from the official prediction file."""
    shards = sorted(glob.glob(os.path.join(glob.escape(examples), f"Split-{EVAL}", "*.tfrecord")))
    predictions = os.path.join(model_run, PREDICTIONS_FOLDER, EVAL, official_name(task, EVAL))
    for path, there in ((os.path.join(examples, f"Split-{EVAL}"), shards), (predictions, os.path.isfile(predictions))):
        if not there:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    rows: list[TaskRow] = []
    for shard in shards:
        with open(shard, "rb") as file:
            rows += read_rows(read_records(file))
    return rows, read_written(task, rows, predictions)


def _evaluations(lines: curves.Log, task: Task) -> Table:
    logged = {name: title for name, title in _LOGGED.items() if any(name in line for line in lines)}
    titles = ["Step", "Loss", *logged.values()]
    rows = [[f"{line['step']:,}", f"{line['loss']:.3f}", *(percent(line[name]) for name in logged)] for line in lines]
    unit = "squared differences" if task.kind == "regression" else "nats"
    caption = (
        f"{len(rows)} evaluation{'s' * (len(rows) != 1)}; losses in {unit}. In training an evaluation may read a part "
        "of the held-out rows; the official scores are of all of them."
    )
    return Table(caption, titles, rows)


def _learned(summary: Mapping[str, Any], steps: int) -> str:
    training = dict(summary["recipe"]["training"])
    if summary["search"] is not None:
        training |= {name: summary["search"]["best"][name] for name in (BATCH, RATE, EPOCHS)}
    together = len(summary["restarts"]["chosen"])
    by = f" by each of {together} models that answer together" if together > 1 else ""
    return (
        f"rows{by}, {epochs(training[EPOCHS])}: {steps:,} steps of {training[BATCH]:,}, learning rate "
        f"{training[RATE]:g}."
    )


def _figures(task: Task, scores: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """All official figures of all labelled splits; the task's scores come first."""
    splits = [split for split in _SPLITS if split in scores]
    names = dict.fromkeys([*task.metrics, *(name for split in splits for name in scores[split])])
    return {
        "splits": [_SPLITS[split] for split in splits],
        "rows": [(name, [figure(task.kind, name, scores[split].get(name)) for split in splits]) for name in names],
    }


def _splits(run: Run, summary: Mapping[str, Any]) -> list[tuple[str, int, int, str]]:
    """Name, number of rows, skipped bad rows and source of each split."""
    files: dict[str, Sequence[str]] = json.loads(str(run.stages[stages.TASK_EXAMPLE_GEN].properties["files"]))
    data = summary["recipe"]["data"]
    limits = {TRAIN: data["max_train_rows"], EVAL: data["max_eval_rows"], "eval_mismatched": data["max_eval_rows"]}
    rows = []
    for split in (split for split in _SPLITS if split in summary["rows"]):
        skipped = sum(summary["rows_skipped"].get(path, 0) for path in files.get(split, []))
        source = ", ".join(dict.fromkeys(os.path.basename(path) for path in files.get(split, [])))
        sample = f"; a seeded sample of at most {limits[split]:,}" if limits.get(split) else ""
        origin = f"{source or 'held out of the training rows'}{sample}"
        rows.append((_SPLITS[split], summary["rows"][split], skipped, origin))
    return rows
