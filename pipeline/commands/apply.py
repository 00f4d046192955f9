"""`bert-tfx apply`: a model over whole files."""

from typing import Annotated

import typer

from pipeline.commands.options import EngineName


def apply(
    context: typer.Context,
    model: Annotated[str, typer.Option(metavar="DIR", help="The folder of a model, or of its versions.")],
    files: Annotated[
        list[str],
        typer.Option("--input", metavar="GLOB", help="JSON lines, CSV, TSV, Parquet or TFRecords; repeatable."),
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="Folder of the answers: new, empty, or to be resumed.")],
    signature: Annotated[str, typer.Option(help="Signature to apply.")] = "serving_default",
    engine: EngineName = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="INPUT=COLUMN", help="Column of an input, if its name differs; repeatable."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]COLUMN", help="Column to copy to the answers, under NAME; repeatable."),
    ] = None,
) -> None:
    """Apply a model to all rows of files, through Beam.

    Answers are the server's. The same command resumes. Rows without an answer go to bad_rows.jsonl. Words after `--`
    go to Beam. The last line of standard output is JSON.
    """
    import json

    from pipeline.apply.run import apply as apply_to
    from pipeline.examples.beam_jobs import restart_if_a_worker_dies

    with restart_if_a_worker_dies():
        figures = apply_to(
            model,
            files,
            output,
            signature=signature,
            engine=engine or "auto",
            columns=column or [],
            keep=keep or [],
            beam_args=context.obj or [],
        )
    typer.echo(json.dumps(figures))
