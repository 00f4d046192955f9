"""`bert-tfx demo`: from text to a served model that answers, in one command."""

import os
from typing import TYPE_CHECKING, Any

import typer

from pipeline.commands.options import DEFAULT_RUN_DIR, RunDir
from pipeline.commands.runs import RecipeName, with_pretrain_options
from pipeline.commands.server.ask import print_masks
from pipeline.runs.exit_codes import exit_if_refused
from pipeline.runs.request import RunRequest
from pipeline.runs.run_dir import serving_dir

if TYPE_CHECKING:
    from serving.client import Client

SECONDS_TO_LOAD = 120.0
DEMO_SENTENCE = "The function returns a new [MASK]."
DEMO_TEXT = "The function returns a new array."


@with_pretrain_options
def demo(options: dict[str, Any], recipe: RecipeName = "tiny_cpu", run_dir: RunDir = DEFAULT_RUN_DIR) -> None:
    """Pre-train, serve the pushed model, and query it."""
    from bert_keras.tokenizers.protocol import default_format
    from pipeline.recipes.pretraining import recipe_of
    from pipeline.runners import local

    recipe_of(recipe)  # refuses tasks
    summary = local.run(RunRequest(recipe, os.path.abspath(run_dir), **options))
    if not summary.get("new_text", True):
        return
    if summary["served_version"] is None:
        exit_if_refused(summary)
    from serving.client import Client
    from serving.server import Server

    with Server(serving_dir(run_dir), grpc_port=0, rest_port=0) as server:
        if not server.wait_until_available(SECONDS_TO_LOAD):
            raise RuntimeError(f"version {summary['served_version']} does not load: see bert-tfx serve")
        typer.echo(f"serving version {server.store.newest}: gRPC {server.host}:{server.grpc_port}")
        with Client(f"{server.host}:{server.grpc_port}") as client:
            _ask(client, default_format(summary["recipe"]["vocabulary"]["algorithm"]).mask)
    typer.echo(f"to keep it served:  .venv/bin/bert-tfx serve --run-dir {run_dir}")
    exit_if_refused(summary)


def _ask(client: "Client", mask: str) -> None:
    if "fill_mask" in client.metadata():  # `bert_keras.saved_model.pretrained`
        sentence = DEMO_SENTENCE.replace("[MASK]", mask)
        print_masks([sentence], client.fill_mask([sentence]))
    else:
        _, tokens, size = client.encode([DEMO_TEXT])["sequence_output"].shape
        typer.echo(f"{DEMO_TEXT}\n  encoded as {tokens} vectors of {size} numbers, one per token")
