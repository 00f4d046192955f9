"""`bert-tfx finetune`: a task's files and a pre-trained model to a pushed model that takes the task's raw text."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pipeline.exit_codes import exit_if_refused
from pipeline.options import Settings
from pipeline.run_request import RunRequest

DEFAULT_RUN_DIR = "runs/TASK"
Files = list[str] | None


def finetune(
    task: Annotated[str, typer.Argument(metavar="TASK", help="`bert-tfx tasks` lists them.")],
    init: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="The model to begin with: one that was pushed, or whatever `bert-tfx convert` reads."
        ),
    ],
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="The task's official folder: train.tsv, dev.tsv, test.tsv, ...")
    ] = None,
    train: Annotated[Files, typer.Option(metavar="FILE", help="Training rows, in place of --data; repeatable.")] = None,
    held_out: Annotated[
        Files, typer.Option("--eval", metavar="FILE", help="Rows to judge on; else some of the training rows are.")
    ] = None,
    test: Annotated[Files, typer.Option(metavar="FILE", help="Rows to answer; they need no label.")] = None,
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="Whether the vocabulary keeps case; needed if DIR does not say."),
    ] = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="First tries the grid of `search.*` on the held-out rows, and takes the best."),
    ] = False,
    restarts: Annotated[
        int | None,
        typer.Option(metavar="N", help="Trains from N seeds, and takes the best on the held-out rows; restarts.count."),
    ] = None,
    settings: Settings = None,
    run_dir: Annotated[
        str, typer.Option(metavar="DIR", help="Where the run's artifacts, checkpoints and models live.")
    ] = DEFAULT_RUN_DIR,
) -> None:
    """Fine-tunes a model for a task: rows, training, official scores, gate, push.

    The same command again continues a run that was stopped, and takes from the cache what is done. The pushed model
    answers raw text: `bert-tfx serve`, then `bert-tfx predict`. Answers to all held-out and test rows are written in
    the official submission formats. Exit codes as of `pretrain`.
    """
    from pipeline.finetune_recipes import finetuning

    recipe = finetuning(task)  # not a recipe of pre-training
    options = ["search.enabled=true"] * search + ([] if restarts is None else [f"restarts.count={restarts}"])
    request = RunRequest(
        recipe.name,
        os.path.abspath(run_dir.replace("TASK", recipe.name)),
        settings=(*options, *(settings or [])),
        data=data,
        train=tuple(train or []),
        held_out=tuple(held_out or []),
        test=tuple(test or []),
        init=init,
        cased=cased,
    )
    from pipeline.runners import local_runner

    exit_if_refused(local_runner.run(request))


def tasks() -> None:
    """The tasks, what kind each is, and by which scores it is judged (the first by the gate)."""
    from bert_keras.tasks.table import TASKS

    for task in TASKS.values():
        what = "pairs" if task.pair else ""
        typer.echo(f"{task.name:12} {task.kind:16} {what:6} {', '.join(task.metrics)}")
