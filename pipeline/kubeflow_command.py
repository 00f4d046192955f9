"""`bert-tfx compile kubeflow`, `run-steps`, `submit`: a pipeline for Kubeflow, tried without a cluster, and started."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.options import Corpus, Settings, Vocab
from pipeline.orchestrate_command import Cased, Data, HeldOut, Init, Name, RecipeOrTask, Test, Train
from pipeline.run_request import RunRequest

CLUSTER_METADATA = "grpc://metadata-grpc-service.kubeflow:8080"
CompiledFile = Annotated[str, typer.Argument(metavar="FILE", help="What `bert-tfx compile kubeflow` wrote.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=VALUE",
        help="A parameter of the pipeline (the file lists them at its top); a list as JSON; repeatable.",
    ),
]


def compile_kubeflow(
    context: typer.Context,
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Of every step: this project, bert-tfx on its PATH.")],
    output: Annotated[str, typer.Option(metavar="FILE.yaml", help="The compiled pipeline.")],
    recipe: RecipeOrTask = "tiny_cpu",
    corpus: Corpus = None,
    vocab: Vocab = None,
    data: Data = None,
    train: Train = None,
    held_out: HeldOut = None,
    test: Test = None,
    init: Init = None,
    cased: Cased = None,
    settings: Settings = None,
    name: Name = "",
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where ML Metadata lies, as of `compile nodes`; the server that Kubeflow Pipelines comes with, in the "
            "namespace kubeflow, if not given.",
        ),
    ] = None,
    volume: Annotated[
        str | None, typer.Option(metavar="CLAIM", help="PersistentVolumeClaim that all steps see (bert-tfx).")
    ] = None,
    mount_path: Annotated[str | None, typer.Option(metavar="DIR", help="Where the steps see it (/runs).")] = None,
    bucket: Annotated[
        str | None,
        typer.Option(metavar="BUCKET", help="For Vertex AI: of Cloud Storage, in place of a volume; needs --metadata."),
    ] = None,
    password_secret: Annotated[
        str | None,
        typer.Option(metavar="NAME/KEY", help="Secret of Kubernetes, and its key, with the password of --metadata."),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(metavar="FILE.yaml", help="What steps ask for: cores, memory, accelerators, nodes."),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(metavar="N", help="How often a step that failed is tried again (2).")
    ] = None,
) -> None:
    """A pipeline for Kubeflow Pipelines or Vertex AI: a container for each node, in one file.

    Corpus (or data and model), recipe, steps, thresholds and further settings are its parameters; what is given here
    are their defaults. Nothing is sent: `submit` does that, `run-steps` tries it. Words after `--` go to Beam.
    docs/orchestration.md says what the image and the volume must hold.
    """
    if not output.endswith((".yaml", ".yml")):
        raise InputError(f"--output {output}: Kubeflow's client takes files that end in .yaml")
    if bucket is not None and metadata is None:
        raise InputError("--bucket: Vertex AI has no server for TFX's ML Metadata; give --metadata, one it can reach")
    from pipeline.runners.kubeflow_runner import KubeflowSettings, run_dir_of, steps_of, write_pipeline
    from pipeline.runners.stage_resources import resources_of

    chosen: dict = {
        "volume": volume,
        "mount_path": mount_path,
        "bucket": bucket,
        "password_secret": password_secret,
        "retries": retries,
    }
    of_cluster = KubeflowSettings(image, **{key: value for key, value in chosen.items() if value is not None})
    request = RunRequest(
        recipe,
        "",
        settings=tuple(settings or []),
        corpus=tuple(corpus or []),
        vocab=vocab,
        data=data,
        train=tuple(train or []),
        held_out=tuple(held_out or []),
        test=tuple(test or []),
        init=init,
        cased=cased,
        name=name,
        metadata=CLUSTER_METADATA if metadata is None else metadata,
        beam_args=tuple(context.obj or []),
    )
    request = run_dir_of(request, of_cluster)
    _ = request.resolved  # a wrong setting is told before TFX is imported
    from pipeline.metadata_store import check_metadata_uri
    from pipeline.orchestrated import graph_of

    check_metadata_uri(request.metadata_uri)
    graph = graph_of(request)
    write_pipeline(output, request, graph, of_cluster, resources_of(resources, steps_of(graph)))
    typer.echo(f"{output}: pipeline {request.pipeline_name}, {len(graph)} nodes; run directory {request.run_dir}")


def run_steps(
    file: CompiledFile,
    parameters: Parameters = None,
    run_id: Annotated[str, typer.Option(metavar="ID", help="What a cluster would call the run.")] = "run",
    logs: Annotated[
        str, typer.Option(metavar="DIR", help="Where the logs and outputs of the steps go, a folder each.")
    ] = "runs/steps",
) -> None:
    """Try a compiled pipeline without a cluster: each step's command, as a process of this machine.

    A step has the environment that the file gives it, and a PATH; values of Secrets are taken from this environment, by
    the name of their variable. Compile with a --mount-path of this machine.
    """
    from pipeline.runners.kubeflow_file import CompiledPipeline
    from pipeline.runners.kubeflow_steps import StepRunner

    pipeline = CompiledPipeline.read(file)
    StepRunner(pipeline, run_id, os.path.abspath(logs), tell=typer.echo).run(pipeline.values(parameters or []))


def submit(
    file: CompiledFile,
    host: Annotated[
        str | None, typer.Option(metavar="URL", help="Of Kubeflow Pipelines; of Vertex AI, if not the region's own.")
    ] = None,
    parameters: Parameters = None,
    run_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the run; the pipeline's and the time.")
    ] = None,
    experiment: Annotated[str, typer.Option(metavar="NAME", help="Of a cluster: which runs it is among.")] = "Default",
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a cluster with several users: whose run it is.")
    ] = None,
    service_account: Annotated[str | None, typer.Option(metavar="NAME", help="Who the steps run as.")] = None,
    vertex: Annotated[bool, typer.Option("--vertex", help="Vertex AI, in place of a cluster.")] = False,
    project: Annotated[str | None, typer.Option(metavar="ID", help="Of Google Cloud.")] = None,
    region: Annotated[str | None, typer.Option(metavar="REGION", help="Of Vertex AI.")] = None,
    bucket: Annotated[str | None, typer.Option(metavar="BUCKET", help="As it was compiled with.")] = None,
) -> None:
    """Start a run of a compiled pipeline on a cluster of Kubeflow Pipelines, or on Vertex AI; prints where it is.

    A token comes from the environment, as BERT_TFX_API_TOKEN; Vertex AI else takes the application default credentials.
    """
    import datetime

    from pipeline.runners import kubeflow_submit
    from pipeline.runners.kubeflow_file import CompiledPipeline

    pipeline = CompiledPipeline.read(file)
    values = pipeline.values(parameters or [])
    run_name = run_name or f"{pipeline.name} {datetime.datetime.now():%Y-%m-%d %H-%M-%S}"
    token = os.environ.get(kubeflow_submit.TOKEN)
    if vertex:
        if not (project and region and bucket):
            raise InputError("--vertex: give --project, --region and --bucket")
        where = kubeflow_submit.submit_to_vertex(
            pipeline, values, host, run_name, project, region, bucket, service_account, token
        )
    elif host is None:
        raise InputError("give --host URL of Kubeflow Pipelines, or --vertex")
    else:
        where = kubeflow_submit.submit_to_cluster(
            pipeline, values, host, run_name, experiment, namespace, service_account, token
        )
    typer.echo(f"run {run_name!r}: {where}")
