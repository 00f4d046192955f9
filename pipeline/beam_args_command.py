"""`bert-tfx beam-args`: the arguments of a Beam engine, for what comes after `--` of `bert-tfx examples`."""

from __future__ import annotations

from typing import Annotated

import typer

from bert_keras.errors import InputError

app = typer.Typer(help="Print what Beam must be told to run on an engine elsewhere.", no_args_is_help=True)


@app.command()
def dataflow(
    project: Annotated[str, typer.Option(help="The project that runs the job and pays.")],
    region: Annotated[str, typer.Option(help="Of the workers; that of text and output.")],
    temp_location: Annotated[str, typer.Option(metavar="GS_FOLDER", help="For what the job needs while it runs.")],
    staging_location: Annotated[
        str | None, typer.Option(metavar="GS_FOLDER", help="For the package (the temporary folder).")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Of the workers, with Beam and bert-tfx in it (Beam's own, which installs bert-tfx itself)."),
    ] = None,
    machine_type: Annotated[str | None, typer.Option(help="Of the workers (n2-standard-4).")] = None,
    max_workers: Annotated[int | None, typer.Option(help="Most workers (20).")] = None,
    bucket_bytes: Annotated[
        int | None, typer.Option(help="corpus.bucket_bytes of the job: it decides the memory of a worker.")
    ] = None,
    service_account: Annotated[str | None, typer.Option(metavar="EMAIL", help="As whom the workers run.")] = None,
    network: Annotated[str | None, typer.Option(help="Of the workers (the project's default).")] = None,
    subnetwork: Annotated[str | None, typer.Option(help="regions/REGION/subnetworks/NAME.")] = None,
    public_ips: Annotated[
        bool | None, typer.Option("--public-ips/--no-public-ips", help="Whether workers have public addresses.")
    ] = None,
) -> None:
    """The arguments for Dataflow, on one line: `bert-tfx examples ... -- $(bert-tfx beam-args dataflow ...)`.

    Nothing is sent: no credentials are needed. docs/scaling.md says what a job needs and costs.
    """
    from components.corpus_gen.settings import CorpusSettings
    from pipeline.runners.dataflow import DataflowSettings, dataflow_args

    more: dict = {
        "staging_location": staging_location,
        "sdk_container_image": image,
        "machine_type": machine_type,
        "max_num_workers": max_workers,
        "service_account_email": service_account,
        "network": network,
        "subnetwork": subnetwork,
        "public_ips": public_ips,
    }
    try:
        given = {key: value for key, value in more.items() if value is not None}
        settings = DataflowSettings(project, region, temp_location, **given)
        corpus = CorpusSettings() if bucket_bytes is None else CorpusSettings(bucket_bytes=bucket_bytes)
    except ValueError as error:
        raise InputError(f"dataflow: {error}") from error
    args = dataflow_args(settings, corpus.bucket_bytes)
    if blank := [arg for arg in args if " " in arg]:
        raise InputError(f"{blank[0]}: has a blank, which a shell would cut it at; move the checkout, or give --image")
    typer.echo(" ".join(args))
