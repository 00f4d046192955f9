"""`bert-tfx finetune`: a task's files and a pre-trained model to a pushed model that takes the task's raw text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.options import Settings
from pipeline.run_dir import made_for_run

if TYPE_CHECKING:
    from pipeline.finetune_recipes import FineTuneRecipe

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
    from pipeline.config import with_settings
    from pipeline.finetune_recipes import finetuning

    options = ["search.enabled=true"] * search + ([] if restarts is None else [f"restarts.count={restarts}"])
    recipe = with_settings(finetuning(task), [*options, *(settings or [])])
    given = {"train": train or [], "eval": held_out or [], "test": test or []}
    summary = run(recipe, data, given, init, cased, os.path.abspath(run_dir.replace("TASK", recipe.name)))
    if not summary["blessed"]:
        from pipeline.cli import Exit

        served = summary["served_version"]
        stays = f"version {served} stays served" if served else "no version is served yet"
        typer.echo(f"bert-tfx: the gate refused this model, nothing was pushed; {stays}", err=True)
        raise typer.Exit(Exit.NOT_BLESSED)


def run(
    recipe: FineTuneRecipe,
    data: str | None,
    given: dict[str, list[str]],
    init: str,
    cased: bool | None,
    run_dir: str,
) -> dict[str, Any]:
    """Runs the pipeline and tells of it; returns the summary."""
    from components.task_example_gen.files import find_splits
    from pipeline.finetune_dag import Beginning, create_pipeline
    from pipeline.runners import local_runner

    files = find_splits(recipe.row, data, given)
    beginning = Beginning.of(init, cased)
    with made_for_run(run_dir):
        pipeline = create_pipeline(recipe, files, beginning, run_dir, local_runner.BEAM_PIPELINE_ARGS)
        local_runner.run(pipeline, run_dir)
    from pipeline.lineage import latest_run
    from pipeline.report.page import write_report
    from pipeline.task_summary import print_summary, summarize

    summary = summarize(latest_run(run_dir), recipe, run_dir)
    write_report(run_dir)
    print_summary(summary, run_dir)
    return summary


def tasks() -> None:
    """The tasks, what kind each is, and by which scores it is judged (the first by the gate)."""
    from bert_keras.tasks.table import TASKS

    for task in TASKS.values():
        what = "pairs" if task.pair else ""
        typer.echo(f"{task.name:12} {task.kind:16} {what:6} {', '.join(task.metrics)}")
