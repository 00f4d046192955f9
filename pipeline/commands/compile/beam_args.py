"""`bert-tfx beam-args`: prints arguments of a Beam engine, to be given after `--` of `bert-tfx examples`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from components.corpus_gen.settings import CorpusSettings
from pipeline.commands.options import with_options
from pipeline.runners.dataflow import DataflowSettings, dataflow_args

app = typer.Typer(help="Print Beam's arguments for a remote engine.", no_args_is_help=True)


@app.command()
@with_options(DataflowSettings, "options")
def dataflow(
    options: dict[str, Any],
    bucket_bytes: Annotated[
        int | None, typer.Option(help="The job's corpus.bucket_bytes; it determines memory.")
    ] = None,
) -> None:
    """Print the arguments for Dataflow on one line: `bert-tfx examples ... -- $(bert-tfx beam-args dataflow ...)`.

    Nothing is sent. docs/scaling.md has needs and costs of a job.
    """
    try:
        settings = DataflowSettings(**options)
        corpus = CorpusSettings() if bucket_bytes is None else CorpusSettings(bucket_bytes=bucket_bytes)
    except ValueError as error:
        raise InputError(f"dataflow: {error}") from error
    args = dataflow_args(settings, corpus.bucket_bytes)
    if with_space := [arg for arg in args if " " in arg]:
        raise InputError(f"{with_space[0]}: a shell would split it at the space; move the checkout, or give --image")
    if not (settings.public_ips or settings.sdk_container_image):
        # A warning only: Private Google Access reaches only Google, but there may be another way out.
        typer.echo(
            "bert-tfx: --no-public-ips without --image: workers install packages at their start, and reach no index "
            "without a public address or Cloud NAT; give --image, with bert-tfx in it",
            err=True,
        )
    typer.echo(" ".join(args))
