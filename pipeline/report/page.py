"""Writes `report.html`, a self-contained page, from a run's summary, artifacts and ML Metadata."""

import os

from bert_keras.errors import InputError
from bert_keras.files import atomic_write_anywhere
from pipeline.report import base_page, pretrain_page, task_page
from pipeline.runs.request import PRETRAIN
from pipeline.runs.run_dir import REPORT_FILE, SUMMARY_FILE


def write_report(run_dir: str) -> str:
    """Write `report.html` of the newest run into `run_dir`, atomically; return its path.

    The same run gives the same bytes. InputError: no finished run in the directory, or its files are gone.
    """
    try:
        summary = base_page.load(run_dir, SUMMARY_FILE)
    except FileNotFoundError as error:
        raise InputError(
            f"{run_dir}: no finished run here (it has no {SUMMARY_FILE}); bert-tfx pretrain or finetune makes one"
        ) from error
    # Importing TFX takes seconds; a wrong directory is reported before it.
    from pipeline.runs.lineage import latest_run

    run, workflow = latest_run(run_dir), summary["workflow"]
    if run.id != summary["run"]:
        raise InputError(
            f"{run_dir}: run {run.id} has not finished ({SUMMARY_FILE} is of {summary['run']}); "
            f"run the same bert-tfx {workflow} command to resume"
        )
    render = pretrain_page.render if workflow == PRETRAIN.name else task_page.render
    try:
        page = render(run, summary, run_dir, base_page.baseline_metrics(run))
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename}: a file of run {run.id} is gone; "
            f"bert-tfx {workflow} with a new --run-dir makes a new one"
        ) from error
    path = os.path.join(run_dir, REPORT_FILE)
    atomic_write_anywhere(path, page)
    return path
