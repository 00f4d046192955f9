"""`bert-tfx ablate`: the paper's experiments, at a scale."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from bert_keras.errors import InputError
from pipeline.options import Settings

if TYPE_CHECKING:
    from pipeline.ablations.experiment import Experiment
    from pipeline.ablations.run import Figures

TABLE_FILE, PICTURE_FILE, FIGURES_FILE = "table.md", "picture.svg", "figures.json"


def ablate(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help="tasks, pretraining, size, masking, steps, features, imdb or relatives."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(metavar="DIR", help="Gets everything; experiments with the same one share what they can."),
    ],
    corpus: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH_OR_GLOB", help="Text to pre-train on, as of `pretrain`; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DIR", help="A task and the folder of its official files; repeatable."),
    ] = None,
    scale: Annotated[str, typer.Option(help="How large: laptop or tiny.")] = "laptop",
    init: Annotated[
        str | None, typer.Option(metavar="DIR", help="Of `features`: a model, in place of one that is pre-trained.")
    ] = None,
    settings: Settings = None,
) -> None:
    """An experiment of the paper: its table with ours beside it, a picture, and which of its orders ours reverses.

    Every arm is pre-trained and fine-tuned on every task, with several seeds; columns of tasks that are not given stay
    empty. Each pre-training and fine-tuning leaves its result below --output: the same command again goes on where it
    was stopped, also in the middle of a training. docs/ablations.md says what each costs.
    """
    from pipeline.ablations.experiments import experiment_of
    from pipeline.ablations.scales import scale_of

    recipe = scale_of(scale, settings or [])
    tasks = _tasks(task or [])
    planned = experiment_of(experiment, recipe, list(tasks))
    if init and experiment != "features":
        raise InputError(f"ablate {experiment} pre-trains its own models; --init is of features alone")
    if bool(corpus) == bool(init):
        raise InputError("give --corpus PATH to pre-train on" + (", or --init, not both" if init else ""))
    output = os.path.abspath(output)

    from pipeline.ablations.results import Results
    from pipeline.ablations.run import figures_of, jobs_of, run
    from pipeline.ablations.trainer import LocalTrainer

    results = Results(output)
    trainer = LocalTrainer(corpus or [], tasks, init or "", results, recipe)
    jobs = jobs_of(planned, recipe, settings or [], trainer)
    for job in jobs:
        if job.column:
            trainer.check(job.recipe, job.column.task)
    found = run(jobs, results, trainer, typer.echo)
    about = {
        "scale": " ".join([scale, *(f"--set {setting}" for setting in settings or [])]),
        "seeds of each fine-tuning": str(recipe.ablation.seeds),
        "seconds of all units": f"{sum(result.seconds for result in found.values()):,.0f}",
    }
    folder = os.path.join(output, planned.name)
    _write(planned, figures_of(planned, jobs, found), about, folder)


def _tasks(given: list[str]) -> dict[str, str]:
    """Folders by the tasks' own names."""
    from bert_keras.tasks.table import task_of

    tasks: dict[str, str] = {}
    for word in given:
        name, equals, folder = word.partition("=")
        if not equals or not folder:
            raise InputError(f"--task {word}: is not NAME=DIR, such as mrpc=glue/MRPC")
        own = task_of(name).name
        if own in tasks:
            raise InputError(f"--task {word}: {own} is given twice")
        tasks[own] = folder
    return tasks


def _write(experiment: Experiment, figures: Figures, about: dict[str, str], folder: str) -> None:
    """Table, picture and figures of an experiment; the table is printed too."""
    from pipeline.ablations.picture import draw
    from pipeline.ablations.table import page

    os.makedirs(folder, exist_ok=True)
    text = page(experiment, figures, about, PICTURE_FILE)
    draw(experiment, figures, os.path.join(folder, PICTURE_FILE))
    cells = [{"arm": arm, "column": header, "figures": values} for (arm, header), values in figures.items()]
    with open(os.path.join(folder, FIGURES_FILE), "w", encoding="utf-8") as file:
        json.dump({"experiment": dataclasses.asdict(experiment), "cells": cells}, file, indent=1, ensure_ascii=False)
    with open(os.path.join(folder, TABLE_FILE), "w", encoding="utf-8") as file:
        file.write(text)
    typer.echo(text)
    typer.echo(f"{os.path.join(folder, TABLE_FILE)}, {PICTURE_FILE} and {FIGURES_FILE} beside it")
