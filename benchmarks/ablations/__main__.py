"""`python -m benchmarks.ablations EXPERIMENT`: the paper's experiments at small scale."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from bert_keras.errors import InputError
from pipeline.cli import main
from pipeline.commands.options import Settings

if TYPE_CHECKING:
    from benchmarks.ablations.experiment import AblationExperiment
    from benchmarks.ablations.runner import Figures

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def ablate(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help="tasks, pretraining, size, masking, steps, features, imdb or relatives."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(metavar="DIR", help="Output folder; experiments with the same one share models where they can."),
    ],
    corpus: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH_OR_GLOB", help="Text to pre-train on, as for `pretrain`; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DIR", help="A task, or minimal-pairs, and the folder of its files; repeatable."),
    ] = None,
    scale: Annotated[str, typer.Option(help="Size of models and training: laptop, demo or tiny.")] = "laptop",
    init: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="For `features` and `pretraining`: a model to use in place of pre-training one."
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Run an experiment of the paper; write its table beside the paper's, a picture, and the reversed orders.

    Every arm is pre-trained, and fine-tuned on every task with several seeds; columns of omitted tasks stay empty. Each
    pre-training and fine-tuning leaves its result below --output, so the same command resumes an interrupted
    experiment, even in the middle of a training. docs/ablations.md lists the costs.
    """
    from benchmarks.ablations.experiments import experiment_of
    from benchmarks.ablations.recipes import scale_of

    recipe = scale_of(scale, settings or [])
    tasks = _tasks(task or [])
    planned = experiment_of(experiment, recipe, list(tasks))
    if init and experiment not in ("features", "pretraining"):
        raise InputError(f"ablate {experiment} pre-trains its own models; --init is for features and pretraining only")
    if bool(corpus) == bool(init):
        raise InputError("give --corpus PATH to pre-train on" + (", or --init, not both" if init else ""))
    output = os.path.abspath(output)

    from benchmarks.ablations.results import Results
    from benchmarks.ablations.runner import figures_of, jobs_of, run
    from benchmarks.ablations.trainer import LocalTrainer

    results = Results(output)
    trainer = LocalTrainer(corpus or [], tasks, init or "", results, recipe)
    jobs = jobs_of(planned, recipe, settings or [], trainer)
    for job in jobs:
        if job.column:
            trainer.check(job.recipe, job.column.task)
    results_of_units = run(jobs, results, trainer, typer.echo)
    about = {
        "scale": " ".join([scale, *(f"--set {setting}" for setting in settings or [])]),
        "seeds of each fine-tuning": str(recipe.ablation.seeds),
        "seconds of all units": f"{sum(result.seconds for result in results_of_units.values()):,.0f}",
    }
    folder = os.path.join(output, planned.name)
    pretrainings = 1 if init else recipe.ablation.pretrainings
    _write(planned, figures_of(planned, jobs, results_of_units), about, folder, pretrainings)


def _tasks(options: list[str]) -> dict[str, str]:
    """Parse `NAME=DIR` options into folders by task name."""
    from benchmarks.ablations.experiment import MINIMAL_PAIRS
    from bert_keras.tasks.table import task_of

    tasks: dict[str, str] = {}
    for option in options:
        name, equals, folder = option.partition("=")
        if not equals or not folder:
            raise InputError(f"--task {option}: must be NAME=DIR, such as mrpc=glue/MRPC")
        task = MINIMAL_PAIRS if name == MINIMAL_PAIRS else task_of(name).name
        if task in tasks:
            raise InputError(f"--task {option}: {task} is given twice")
        tasks[task] = folder
    return tasks


def _write(
    experiment: AblationExperiment, figures: Figures, about: dict[str, str], folder: str, pretrainings: int
) -> None:
    """Write table, picture and figures of an experiment; print the table."""
    from benchmarks.ablations.plot import draw
    from benchmarks.ablations.table import page

    os.makedirs(folder, exist_ok=True)
    text = page(experiment, figures, about, "picture.svg", pretrainings)
    draw(experiment, figures, os.path.join(folder, "picture.svg"))
    cells = [{"arm": arm, "column": header, "figures": values} for (arm, header), values in figures.items()]
    figures_text = json.dumps({"experiment": dataclasses.asdict(experiment), "cells": cells}, indent=1)
    for name, content in {"figures.json": figures_text, "table.md": text}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
    typer.echo(f"{text}\nwrote {folder}/table.md; picture.svg and figures.json are in the same folder")


if __name__ == "__main__":
    main(app)
