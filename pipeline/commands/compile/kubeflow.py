"""`bert-tfx compile kubeflow`, `run-steps`, `submit`: compile a pipeline for Kubeflow, run it locally, submit it."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.compile.nodes import INPUTS, RecipeOrTask
from pipeline.commands.options import chosen, with_options
from pipeline.runs.request import RunRequest

CompiledFile = Annotated[str, typer.Argument(metavar="FILE", help="Output of `bert-tfx compile kubeflow`.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=VALUE",
        help="A parameter of the pipeline (listed at the top of the file); lists as JSON; repeatable.",
    ),
]


@with_options(RunRequest, "options", (*INPUTS, "settings", "name"))
def compile_kubeflow(
    context: typer.Context,
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Image of every step, with bert-tfx on its PATH.")],
    output: Annotated[str, typer.Option(metavar="FILE.yaml", help="The compiled pipeline.")],
    options: dict[str, Any],
    recipe: RecipeOrTask = "tiny_cpu",
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Location of ML Metadata, as for `compile nodes`; default: a SQLite file in the run directory, on the "
            "volume; the steps then run one after another.",
        ),
    ] = None,
    volume: Annotated[
        str | None, typer.Option(metavar="CLAIM", help="PersistentVolumeClaim shared by all steps (bert-tfx).")
    ] = None,
    mount_path: Annotated[str | None, typer.Option(metavar="DIR", help="Mount path of the volume (/runs).")] = None,
    bucket: Annotated[
        str | None,
        typer.Option(metavar="BUCKET", help="For Vertex AI: bucket of Cloud Storage, in place of a volume."),
    ] = None,
    password_secret: Annotated[
        str | None,
        typer.Option(metavar="NAME/KEY", help="Kubernetes Secret and its key with the password of --metadata."),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(metavar="FILE.yaml", help="Resources of the steps: cores, memory, accelerators, nodes."),
    ] = None,
    retries: Annotated[int | None, typer.Option(metavar="N", help="Retries of a failed step (2).")] = None,
) -> None:
    """Compile a pipeline for Kubeflow Pipelines or Vertex AI into one file: one container per node.

    Corpus (or data and initial checkpoint), recipe, steps, thresholds and further settings become parameters, with the
    values given here as defaults. `submit` sends the file, `run-steps` tries it. Words after `--` go to Beam.
    docs/orchestration.md lists what the image and the volume must contain.
    """
    if not output.endswith((".yaml", ".yml")):
        raise InputError(f"--output {output}: must end in .yaml, for Kubeflow's client")
    if bucket is not None and metadata is None:
        raise InputError("--bucket: Cloud Storage cannot hold a SQLite file; give a --metadata that it can reach")
    from pipeline.runners.kubeflow import KubeflowSettings, run_dir_of, steps_of, write_pipeline
    from pipeline.runners.stage_resources import resources_of

    cluster = chosen(KubeflowSettings, context)
    request = RunRequest(recipe, "", metadata=metadata or "", beam_args=tuple(context.obj or []), **options)
    request = run_dir_of(request, cluster)
    _ = request.resolved  # invalid settings are reported before TFX is imported
    from pipeline.runners.run_steps import graph_of
    from pipeline.runs.metadata_store import check_metadata_uri

    check_metadata_uri(request.metadata_uri)
    graph = graph_of(request)
    write_pipeline(output, request, graph, cluster, resources_of(resources, steps_of(graph)))
    typer.echo(f"{output}: pipeline {request.pipeline_name}, {len(graph)} nodes; run directory {request.run_dir}")


def run_steps(
    file: CompiledFile,
    parameters: Parameters = None,
    run_id: Annotated[str, typer.Option(metavar="ID", help="Id of the run, which a cluster would assign.")] = "run",
    logs: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of the steps' logs and outputs, one subfolder per step.")
    ] = "runs/steps",
) -> None:
    """Run a compiled pipeline without a cluster: each step's command becomes a local process.

    A step sees only the environment that the file gives it, and a PATH; values of Secrets are taken from this
    environment, by the names of their variables. Compile with a local --mount-path.
    """
    from pipeline.runners.kubeflow_local import StepRunner
    from pipeline.runners.kubeflow_spec import CompiledPipeline

    pipeline = CompiledPipeline.read(file)
    StepRunner(pipeline, run_id, os.path.abspath(logs), tell=typer.echo).run(pipeline.values(parameters or []))


def submit(
    file: CompiledFile,
    host: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of Kubeflow Pipelines; for Vertex AI of another endpoint.")
    ] = None,
    parameters: Parameters = None,
    run_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the run (the pipeline's name and the time).")
    ] = None,
    experiment: Annotated[str, typer.Option(metavar="NAME", help="Experiment of the run, on a cluster.")] = "Default",
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help="Namespace of a multi-user cluster.")] = None,
    service_account: Annotated[str | None, typer.Option(metavar="NAME", help="Account of the steps.")] = None,
    vertex: Annotated[bool, typer.Option("--vertex", help="Submit to Vertex AI, in place of a cluster.")] = False,
    project: Annotated[str | None, typer.Option(metavar="ID", help="Project of Google Cloud.")] = None,
    region: Annotated[str | None, typer.Option(metavar="REGION", help="Region of Vertex AI.")] = None,
    bucket: Annotated[str | None, typer.Option(metavar="BUCKET", help="Bucket that it was compiled with.")] = None,
) -> None:
    """Start a run of a compiled pipeline on Kubeflow Pipelines or Vertex AI; print the URL of its page.

    The token is read from BERT_TFX_API_TOKEN; without it Vertex AI uses the application default credentials.
    """
    import datetime

    from pipeline.runners import kubeflow_submit
    from pipeline.runners.kubeflow_spec import CompiledPipeline

    pipeline = CompiledPipeline.read(file)
    values = pipeline.values(parameters or [])
    run_name = run_name or f"{pipeline.name} {datetime.datetime.now():%Y-%m-%d %H-%M-%S}"
    token = os.environ.get(kubeflow_submit.TOKEN)
    if vertex:
        if not (project and region and bucket):
            raise InputError("--vertex: give --project, --region and --bucket")
        url = kubeflow_submit.submit_to_vertex(
            pipeline, values, host, run_name, project, region, bucket, service_account, token
        )
    elif host is None:
        raise InputError("give --host URL of Kubeflow Pipelines, or --vertex")
    else:
        url = kubeflow_submit.submit_to_cluster(
            pipeline, values, host, run_name, experiment, namespace, service_account, token
        )
    typer.echo(f"run {run_name!r}: {url}")
