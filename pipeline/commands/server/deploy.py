"""`bert-tfx deploy`: files for serving pushed models with a production server."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import RunDir, chosen

app = typer.Typer(help="Write the files for serving pushed models with a production server.", no_args_is_help=True)


@app.command("tf-serving")
def tf_serving(
    context: typer.Context,
    output: Annotated[str, typer.Option(metavar="DIR", help="Output folder: new, or from an earlier call.")],
    run_dir: RunDir = "runs/demo",
    model_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of versions, in place of --run-dir."),
    ] = None,
    model_name: Annotated[str, typer.Option(help="Name of the served model.")] = "bert",
    stable: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Version of the label `stable` (the newest).")
    ] = None,
    canary: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Version of the label `canary`, loaded beside the stable one.")
    ] = None,
    base_image: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="TensorFlow Serving's image (of the TensorFlow that exported the model)."),
    ] = None,
    repository: Annotated[
        str | None, typer.Option(help="Name of the built image, without tag (NAME-tf-serving).")
    ] = None,
    min_replicas: Annotated[int | None, typer.Option(help="Minimum number of pods (2).")] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Maximum number of pods (8).")] = None,
    cpus: Annotated[int | None, typer.Option(help="Cores per pod (2).")] = None,
    memory_mib: Annotated[int | None, typer.Option(help="MiB per pod (derived from the models).")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="Maximum texts per batch and per request (32).")] = None,
    merge_requests: Annotated[
        bool | None,
        typer.Option(
            "--batching/--no-batching",
            help="Whether to batch requests (yes, unless an input's shape differs by request).",
        ),
    ] = None,
    ssl: Annotated[bool | None, typer.Option("--ssl", help="gRPC with TLS and client certificates.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Kubernetes namespace; the manifests create it.")] = None,
) -> None:
    """Write the image, manifests and configuration of TensorFlow Serving.

    Nothing is built or sent. The README.md among the files has the commands; see also docs/deploying.md.
    """
    from pathlib import Path

    from pipeline.runs.run_dir import serving_dir
    from serving.deploy.folder import refuse_foreign, write_folder
    from serving.deploy.generate import generate
    from serving.deploy.settings import CannotDeploy, DeploySettings

    base, folder = Path(model_dir or serving_dir(run_dir)), Path(os.path.abspath(output))
    try:
        settings = chosen(DeploySettings, context)
        refuse_foreign(folder)
        deployment = generate(base, folder, model_name, settings, stable, canary)
        write_folder(folder, deployment.files)
    except CannotDeploy as error:
        raise InputError(str(error)) from error
    canary_label = f", canary {deployment.canary}" if deployment.canary != deployment.stable else ""
    labels = f"stable is {deployment.stable}{canary_label}"
    batching_note = "" if deployment.batching else ", no batching"
    pod = f"{settings.cpus} cores and {deployment.memory_mib} MiB a pod{batching_note}"
    typer.echo(f"{output}: {deployment.image} from {deployment.base_image}; {labels}; {pod}")
    typer.echo(f"next commands: {os.path.join(output, 'README.md')}")
