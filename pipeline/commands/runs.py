"""The two kinds of run, `pretrain` and `finetune`, their recipes and tasks, and the report of a run."""

import inspect
import os
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import DEFAULT_RUN_DIR, RunDir, with_options
from pipeline.runs.exit_codes import exit_if_refused
from pipeline.runs.request import FINETUNE, PRETRAIN, RunRequest

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe; `bert-tfx recipes` lists them.")]
with_pretrain_options = with_options(RunRequest, "options", (*PRETRAIN.inputs, "settings"))
_TASK_RUN_DIR = "runs/TASK"


@with_pretrain_options
def pretrain(
    context: typer.Context, options: dict[str, Any], recipe: RecipeName = "tiny_cpu", run_dir: RunDir = DEFAULT_RUN_DIR
) -> None:
    """Pre-train a model, judge it and push it.

    The same command resumes, and takes finished stages from the cache. Words after `--` go to Beam. Exit codes: 0
    pushed or nothing new, 1 a stage failed, 2 bad input, 3 the gate refused the model, 4 stopped while training.
    """
    from pipeline.recipes.pretraining import recipe_of
    from pipeline.runners import local

    recipe_of(recipe)  # refuses tasks
    request = RunRequest(recipe, os.path.abspath(run_dir), beam_args=tuple(context.obj or []), **options)
    exit_if_refused(local.run(request))


@with_options(RunRequest, "options", (*FINETUNE.inputs, "settings"), required=["init"])
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
    ] = _TASK_RUN_DIR,
) -> None:
    """Fine-tune a model for a task, judge it and push it.

    The same command resumes, and takes finished stages from the cache. Predictions of held-out and test rows are
    written in the official formats. Exit codes are those of `pretrain`.
    """
    from pipeline.recipes.finetuning import finetuning
    from pipeline.runners import local

    name = finetuning(task).name  # refuses recipes of pre-training
    settings = ["search.enabled=true"] * search + ([] if restarts is None else [f"restarts.count={restarts}"])
    options["settings"] = (*settings, *options["settings"])
    run_dir = f"runs/{name}" if run_dir == _TASK_RUN_DIR else run_dir
    exit_if_refused(local.run(RunRequest(name, os.path.abspath(run_dir), **options)))


def tasks() -> None:
    """List the tasks, their types and scores."""
    from bert_keras.tasks.table import TASKS

    for task in TASKS.values():
        pair = "pairs" if task.pair else ""
        typer.echo(f"{task.name:12} {task.kind:16} {pair:6} {', '.join(task.metrics)}")


def recipes(
    recipe: Annotated[str | None, typer.Argument(metavar="RECIPE", help="Recipe or task with its settings.")] = None,
) -> None:
    """List the recipes, or the settings, hardware and time of one."""
    from bert_keras.tasks.table import TASKS
    from pipeline.recipes.finetuning import TASK_RECIPES, finetuning
    from pipeline.recipes.pretraining import RECIPES, recipe_of
    from pipeline.recipes.settings import settings_of

    if recipe is None:
        typer.echo("bert-tfx pretrain RECIPE --corpus 'text/*.txt'")
        for name, make in RECIPES.items():
            typer.echo(f"  {name:18} {(make.__doc__ or '').splitlines()[0]}")
        typer.echo("bert-tfx finetune TASK --init MODEL --data FOLDER")
        for make_task in dict.fromkeys(TASK_RECIPES.values()):
            names = [task.name for task in TASKS.values() if TASK_RECIPES[task.reader] is make_task]
            typer.echo(f"  {', '.join(names)}\n  {'':18} {(make_task.__doc__ or '').splitlines()[0]}")
    elif recipe not in {**RECIPES, **TASKS}:
        raise InputError(f"{recipe}: no such recipe ({', '.join(RECIPES)}) and no such task ({', '.join(TASKS)})")
    else:
        settings = settings_of(recipe_of(recipe) if recipe in RECIPES else finetuning(recipe))
        title, _, facts = (inspect.getdoc(RECIPES[recipe]) or "").partition("\n\n") if recipe in RECIPES else ("",) * 3
        command = "" if "Command: " in facts else f"Command:   bert-tfx pretrain {recipe} --corpus 'text/*.txt'\n"
        for line in f"{title}\n\n{command}{facts}".splitlines() if title else ():
            typer.echo(f"# {line}".rstrip())
        for key, value in settings.items():
            typer.echo(f"{key}={','.join(map(str, value)) if isinstance(value, tuple) else value}")


def report(run_dir: RunDir = DEFAULT_RUN_DIR) -> None:
    """Write report.html of the newest run again."""
    from pipeline.report.page import write_report

    typer.echo(write_report(os.path.abspath(run_dir)))
