"""`bert-tfx compile kubeflow`: compile a pipeline for Kubeflow Pipelines or Vertex AI."""

import re
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.compile.nodes import INPUTS, RecipeOrTask
from pipeline.commands.options import with_options
from pipeline.runs.request import KubeflowCluster, RunRequest


@with_options(KubeflowCluster, "cluster", make=KubeflowCluster)
@with_options(RunRequest, "options", (*INPUTS, "settings", "name"))
def compile_kubeflow(
    context: typer.Context,
    cluster: KubeflowCluster,
    output: Annotated[str, typer.Option(metavar="FILE.yaml", help="The compiled pipeline.")],
    options: dict[str, Any],
    recipe: RecipeOrTask = "tiny_cpu",
    metadata: Annotated[
        str | None,
        typer.Option(metavar="URI", help="ML Metadata; default: a file on the volume, steps run one by one."),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(metavar="FILE.yaml", help="Resources of the steps: cores, memory, accelerators, nodes."),
    ] = None,
) -> None:
    """Compile a pipeline for Kubeflow Pipelines or Vertex AI.

    Values given here are the defaults of parameters. Words after `--` go to Beam. docs/orchestration.md lists the
    contents of image and volume.
    """
    if not output.endswith((".yaml", ".yml")):
        raise InputError(f"--output {output}: must end in .yaml, for Kubeflow's client")
    if cluster.bucket is not None and (metadata or "sqlite:").startswith("sqlite:"):
        raise InputError("--bucket: Cloud Storage cannot hold a SQLite file; give a --metadata that it can reach")
    if metadata and re.match("sqlite:[^/]", metadata):
        raise InputError(f"--metadata {metadata}: give an absolute path on the volume")
    from pipeline.runners.kubeflow import in_shared_folder, steps_of, write_pipeline
    from pipeline.runners.stage_resources import resources_of
    from pipeline.runs.resolve import without_inputs

    request = RunRequest(recipe, "", metadata=metadata or "", beam_args=tuple(context.obj or []), **options)
    spec = in_shared_folder(without_inputs(request), cluster)  # refuses invalid settings before TFX is imported
    from pipeline.runners.run_steps import graph_of
    from pipeline.runs.metadata_store import connection_config

    connection_config(spec.request.metadata_uri)
    graph = graph_of(spec)
    write_pipeline(output, spec, graph, cluster, resources_of(resources, steps_of(graph)))
    typer.echo(f"{output}: pipeline {spec.request.name}, {len(graph)} nodes; run directory {spec.request.run_dir}")
