"""`bert-tfx deploy`: files for serving pushed models with a production server."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import DEFAULT_RUN_DIR, ModelDir, RunDir, with_options
from serving.deploy.settings import CannotDeploy, DeploySettings

app = typer.Typer(help="Write the files for serving pushed models with a production server.", no_args_is_help=True)


@app.command("tf-serving")
@with_options(DeploySettings, "options")
def tf_serving(
    output: Annotated[str, typer.Option(metavar="DIR", help="Output folder: new or empty.")],
    options: dict[str, Any],
    run_dir: RunDir = DEFAULT_RUN_DIR,
    model_dir: ModelDir = None,
    model_name: Annotated[str, typer.Option(help="Name of the served model.")] = "bert",
    stable: Annotated[int | None, typer.Option(metavar="VERSION", help="Version with that label (the newest).")] = None,
    canary: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Version of the label `canary`, loaded beside the stable one.")
    ] = None,
) -> None:
    """Write the image, manifests and configuration of TensorFlow Serving.

    Nothing is built or sent. The README.md among the files has the commands; see also docs/deploying.md.
    """
    from pipeline.runs.run_dir import serving_dir
    from serving.deploy.generate import generate, write_folder

    base, folder = Path(model_dir or serving_dir(run_dir)), Path(os.path.abspath(output))
    try:
        settings = DeploySettings(**options)
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
