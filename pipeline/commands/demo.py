"""`bert-tfx demo`: from text to a served model that answers, in one command."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import DEFAULT_RUN_DIR, RunDir
from pipeline.commands.runs import RecipeName, with_pretrain_options
from pipeline.commands.server.ask import print_masks
from pipeline.commands.server.predict import print_answers
from pipeline.runs.exit_codes import exit_if_refused
from pipeline.runs.request import RunRequest
from pipeline.runs.run_dir import serving_dir

if TYPE_CHECKING:
    from bert_keras.tasks.rows import TaskRow
    from serving.client import Client

SECONDS_TO_LOAD = 120.0
DEMO_SENTENCE = "The function returns a new [MASK]."
DEMO_TEXT = "The function returns a new array."
_ROWS, _SHOWN_CHARACTERS = 3, 200


@with_pretrain_options
def demo(
    options: dict[str, Any],
    recipe: RecipeName = "tiny_cpu",
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=DIR",
            help="Fine-tune for this task, on its official folder, and serve that model.",
        ),
    ] = None,
    task_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.FIELD=VALUE",
            help="Change a setting of the fine-tuning; repeatable.",
        ),
    ] = None,
    run_dir: RunDir = DEFAULT_RUN_DIR,
) -> None:
    """Pre-train, serve the pushed model, and query it.

    With --task, also fine-tune (in RUN_DIR/NAME), and query that model with the task's rows.
    """
    fine_tuning, rows = _fine_tuning(task, task_set or [], run_dir)
    from bert_keras.tokenizers.protocol import default_format
    from pipeline.recipes.pretraining import recipe_of
    from pipeline.runners import local

    recipe_of(recipe)  # refuses tasks
    summary = local.run(RunRequest(recipe, os.path.abspath(run_dir), **options))

    mask = default_format(summary["recipe"]["vocabulary"]["algorithm"]).mask
    if fine_tuning and summary["served_version"]:
        init = os.path.join(serving_dir(os.path.abspath(run_dir)), str(summary["served_version"]))
        exit_if_refused(summary)
        summary, run_dir = local.run(dataclasses.replace(fine_tuning, init=init)), fine_tuning.run_dir
    if summary["served_version"] is None:
        exit_if_refused(summary)
    from serving.client import Client
    from serving.server import Server

    with Server(serving_dir(run_dir), grpc_port=0, rest_port=0) as server:
        if not server.wait_until_available(SECONDS_TO_LOAD):
            raise RuntimeError(f"version {summary['served_version']} does not load: see bert-tfx serve")
        typer.echo(f"serving version {server.store.newest}: gRPC {server.host}:{server.grpc_port}")
        with Client(f"{server.host}:{server.grpc_port}") as client:
            _ask(client, mask, rows)
    typer.echo(f"to keep it served:  .venv/bin/bert-tfx serve --run-dir {run_dir}")
    exit_if_refused(summary)


def _fine_tuning(
    task: str | None, settings: Sequence[str], run_dir: str
) -> tuple[RunRequest | None, Sequence[TaskRow]]:
    """The request of --task, without its initial model, and rows of its last split to ask for."""
    if task is None:
        if settings:
            raise InputError(f"--task-set {settings[0]}: give --task NAME=DIR too")
        return None, ()
    name, _, folder = task.partition("=")
    if not folder:
        raise InputError(f"--task {task}: must be NAME=DIR, such as sst-2=SST-2/")
    from components.task_example_gen.readers import read_rows
    from components.task_example_gen.split_files import find_splits
    from pipeline.recipes.finetuning import finetuning
    from pipeline.recipes.settings import with_settings

    recipe = with_settings(finetuning(name), settings)
    *_, paths = find_splits(recipe.row, folder).values()
    read = (read_rows(recipe.row, path, recipe.data.on_bad_row, recipe.data.columns) for path in paths)
    task_dir = os.path.join(os.path.abspath(run_dir), recipe.name)
    request = RunRequest(recipe.name, task_dir, data=folder, settings=tuple(settings))
    return request, tuple(itertools.islice(itertools.chain.from_iterable(read), _ROWS))


def _ask(client: Client, mask: str, rows: Sequence[TaskRow]) -> None:
    """Query the served model: of a task its rows, else fill a mask if it can, else encode a text."""
    from serving.models.servable import DEFAULT_SIGNATURE

    signatures = client.metadata()
    if rows:
        inputs = {name: [row.inputs[name] for row in rows] for name in signatures[DEFAULT_SIGNATURE].inputs}
        for row in rows:
            typer.echo(" | ".join(_shown(str(text)) for text in row.inputs.values()))
        print_answers(client.predict(inputs))
    elif "fill_mask" in signatures:  # `bert_keras.saved_model.pretrained`
        sentence = DEMO_SENTENCE.replace("[MASK]", mask)
        print_masks([sentence], client.fill_mask([sentence]))
    else:
        _, tokens, size = client.encode([DEMO_TEXT])["sequence_output"].shape
        typer.echo(f"{DEMO_TEXT}\n  encoded as {tokens} vectors of {size} numbers, one per token")


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
