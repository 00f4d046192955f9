"""`bert-tfx finetune`: a task's files and a pre-trained model to a pushed model that takes raw text."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from pipeline.commands.options import with_options
from pipeline.runs.exit_codes import exit_if_refused
from pipeline.runs.request import RunRequest
from pipeline.workflows.finetune import FineTuneWorkflow

DEFAULT_RUN_DIR = "runs/TASK"


@with_options(RunRequest, "options", (*FineTuneWorkflow.inputs, "settings"), required=["init"])
def finetune(
    task: Annotated[str, typer.Argument(metavar="TASK", help="`bert-tfx tasks` lists them.")],
    options: dict[str, Any],
    search: Annotated[
        bool,
        typer.Option("--search", help="First search the grid of `search.*` on the held-out rows; use the best values."),
    ] = False,
    restarts: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train with N seeds and push the best on the held-out rows; restarts.count."),
    ] = None,
    run_dir: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of the run's artifacts, checkpoints and models.")
    ] = DEFAULT_RUN_DIR,
) -> None:
    """Fine-tune a model for a task, judge it and push it.

    The same command resumes, and takes finished stages from the cache. Predictions of held-out and test rows are
    written in the official formats. Exit codes are those of `pretrain`.
    """
    from pipeline.recipes.finetuning import finetuning

    recipe = finetuning(task)  # refuses recipes of pre-training
    settings = ["search.enabled=true"] * search + ([] if restarts is None else [f"restarts.count={restarts}"])
    options["settings"] = (*settings, *options["settings"])
    run_dir = f"runs/{recipe.name}" if run_dir == DEFAULT_RUN_DIR else run_dir
    request = RunRequest(recipe.name, os.path.abspath(run_dir), **options)
    from pipeline.runners import local

    exit_if_refused(local.run(request))


def tasks() -> None:
    """List the tasks, their types and scores."""
    from bert_keras.tasks.table import TASKS

    for task in TASKS.values():
        pair = "pairs" if task.pair else ""
        typer.echo(f"{task.name:12} {task.kind:16} {pair:6} {', '.join(task.metrics)}")
