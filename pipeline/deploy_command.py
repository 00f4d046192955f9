"""`bert-tfx deploy`: the files with which a production server serves what was pushed."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.options import RunDir

app = typer.Typer(help="Write what a production server needs to serve what was pushed.", no_args_is_help=True)


@app.command("tf-serving")
def tf_serving(
    output: Annotated[str, typer.Option(metavar="DIR", help="Where the files go: a new folder, or an earlier one.")],
    run_dir: RunDir = "runs/demo",
    model_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A folder of versions to serve, instead of the run's serving/."),
    ] = None,
    model_name: Annotated[str, typer.Option(help="The name that clients ask for.")] = "bert",
    stable: Annotated[
        int | None, typer.Option(metavar="VERSION", help="The version of the label `stable` (the newest).")
    ] = None,
    canary: Annotated[
        int | None, typer.Option(metavar="VERSION", help="A version to load beside it, as label `canary`.")
    ] = None,
    base_image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="TensorFlow Serving's image (of the TensorFlow that exported the model)."),
    ] = None,
    repository: Annotated[
        str | None, typer.Option(help="What the built image is called, without tag (NAME-tf-serving).")
    ] = None,
    min_replicas: Annotated[int | None, typer.Option(help="Fewest pods (2).")] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Most pods (8).")] = None,
    cpus: Annotated[int | None, typer.Option(help="Cores of a pod (2).")] = None,
    memory_mib: Annotated[int | None, typer.Option(help="MiB of a pod (derived from the models).")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="Most texts of a batch, and of a request (32).")] = None,
    batching: Annotated[
        bool | None,
        typer.Option(
            "--batching/--no-batching",
            help="Whether requests are answered together (unless an input's shape differs by request).",
        ),
    ] = None,
    ssl: Annotated[bool | None, typer.Option("--ssl", help="gRPC with TLS and client certificates.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Of Kubernetes; it is made as well.")] = None,
) -> None:
    """Dockerfile, Docker Compose, Kubernetes manifests and TensorFlow Serving's own configuration, for pushed versions.

    Nothing is built or sent. The README.md among the files has the commands, in order; docs/deploying.md says more.
    """
    from pathlib import Path

    from pipeline.run_dir import serving_dir
    from serving.deploy.errors import CannotDeploy
    from serving.deploy.folder import refuse_foreign, write_folder
    from serving.deploy.generate import generate
    from serving.deploy.settings import DeploySettings

    chosen: dict = {
        "base_image": base_image,
        "repository": repository,
        "min_replicas": min_replicas,
        "max_replicas": max_replicas,
        "cpus": cpus,
        "memory_mib": memory_mib,
        "max_batch_size": max_batch_size,
        "merge_requests": batching,
        "ssl": ssl,
        "namespace": namespace,
    }
    base, folder = Path(model_dir or serving_dir(run_dir)), Path(os.path.abspath(output))
    try:
        settings = DeploySettings(**{key: value for key, value in chosen.items() if value is not None})
        refuse_foreign(folder)
        made = generate(base, folder, model_name, settings, stable, canary)
        write_folder(folder, made.files)
    except CannotDeploy as error:
        raise InputError(str(error)) from error
    labels = f"stable is {made.stable}" + (f", canary {made.canary}" if made.canary != made.stable else "")
    pod = f"{settings.cpus} cores and {made.memory_mib} MiB a pod" + ("" if made.batching else ", no batching")
    typer.echo(f"{output}: {made.image} from {made.base_image}; {labels}; {pod}")
    typer.echo(f"what to run next, in order: {os.path.join(output, 'README.md')}")
