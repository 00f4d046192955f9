"""`report.html`: one self-contained page a run, from its summary, its artifacts and ML Metadata."""

from __future__ import annotations

import os
import uuid

from bert_keras.errors import InputError
from pipeline.report import frame

REPORT_FILE = "report.html"
SUMMARY_FILE = "summary.json"


def write_report(run_dir: str) -> str:
    """Writes `report.html` of the newest run into `run_dir`, and returns its path.

    The page is there whole or not at all, and the same run gives the same bytes.

    Raises:
        InputError: no run has finished there, or its files are gone.
    """
    try:
        summary = frame.load(run_dir, SUMMARY_FILE)
    except FileNotFoundError as error:
        raise InputError(
            f"{run_dir}: no finished run here (it has no {SUMMARY_FILE}); bert-tfx pretrain or finetune makes one"
        ) from error
    made_by, needed = ("finetune", "restarts") if "task" in summary else ("pretrain", "objective")
    if needed not in summary:
        raise InputError(
            f"{run_dir}: its {SUMMARY_FILE} is of an earlier version; "
            f"the same bert-tfx {made_by} command writes it again"
        )
    # TFX takes seconds to import; a wrong directory is told at once.
    from pipeline.lineage import latest_run
    from pipeline.report import pretrain_page, task_page

    run = latest_run(run_dir)
    if run.id != summary["run"]:
        raise InputError(
            f"{run_dir}: run {run.id} has not finished ({SUMMARY_FILE} is of {summary['run']}); "
            f"the same bert-tfx {made_by} command goes on with it"
        )
    try:
        render = task_page.render if made_by == "finetune" else pretrain_page.render
        page = render(run, summary, run_dir, frame.baseline_metrics(run))
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename}: a file of run {run.id} is gone; bert-tfx {made_by} with a new --run-dir makes a new one"
        ) from error
    path = os.path.join(run_dir, REPORT_FILE)
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
    return path
