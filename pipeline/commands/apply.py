"""`bert-tfx apply`: a model over whole files."""

from __future__ import annotations

from typing import Annotated

import typer


def apply(
    context: typer.Context,
    model: Annotated[
        str, typer.Option(metavar="DIR", help="A pushed, converted or fine-tuned model: its folder, or its versions'.")
    ],
    files: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="GLOB",
            help="JSON lines, CSV, TSV, Parquet or TFRecords: a file, a folder or a quoted glob; repeatable.",
        ),
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="Folder of the answers: new, empty, or to be resumed.")],
    signature: Annotated[str, typer.Option(help="Signature to apply.")] = "serving_default",
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=COLUMN",
            help="Column of an input, if its name differs; several for one input make a list; repeatable.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]COLUMN", help="Column to copy to the answers, under NAME; repeatable."),
    ] = None,
) -> None:
    """Apply a signature of a model to all rows of files, through Beam; write lines of JSON.

    Answers have the names and values of the server's. The same command resumes after a kill: finished shards are not
    computed again. Rows that have no answer go to bad_rows.jsonl, with file, record and reason. Beam's arguments follow
    `--`: `-- --direct_num_workers=2`, or `-- $(bert-tfx beam-args dataflow ...)`. The last line of standard output is
    JSON: rows, bad rows, shards, seconds, peak memory.
    """
    import json

    from pipeline.apply.run import apply as apply_to
    from pipeline.examples.worker_restart import restart_if_a_worker_dies

    def tell(line: str) -> None:
        typer.echo(f"bert-tfx: {line}", err=True)

    with restart_if_a_worker_dies(tell):
        figures = apply_to(
            model,
            files,
            output,
            signature=signature,
            columns=column or [],
            keep=keep or [],
            beam_args=context.obj or [],
            tell=tell,
        )
    typer.echo(json.dumps(figures))
