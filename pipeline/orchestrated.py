"""A run in steps that an orchestrator schedules: compile the pipeline, launch each node of it, tell of it.

A node of the compiled pipeline is the unit of execution everywhere. In one process they follow each other
(`pipeline.runners.local_runner`); Airflow and Kubeflow start a process for each (docs/orchestration.md). The launch is
TFX's: ML Metadata tells it what the node reads, whether the cache has it, and where it writes.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Any

from google.protobuf import text_format
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2

from bert_keras.errors import InputError, StageError
from components.shards import whole_file
from pipeline import example_generation
from pipeline.lineage import Run, run_named
from pipeline.metadata_store import check_metadata_uri, connection_config
from pipeline.node_launcher import NodeLauncher
from pipeline.run_inputs import RunInputs
from pipeline.run_request import RunRequest, intermediate_representation

# The workers are this process: there is no image. Without one, TFX packs itself for workers elsewhere, at every stage
# anew, and leaves 45 MB of it in the folder for temporary files.
BEAM_PIPELINE_ARGS = (*example_generation.BEAM_PIPELINE_ARGS, "--sdk_container_image=none")


def compile_run(request: RunRequest, inputs: RunInputs, run_id: str) -> list[str]:
    """Writes what the later steps of a run need; returns its nodes in an order in which they may run.

    Raises:
        InputError: a file, a model, or a place of ML Metadata that cannot be used.
        StageError: ML Metadata is not there.
    """
    check_metadata_uri(request.metadata_uri)
    ir = compiler.Compiler().compile(_pipeline(request, inputs))
    runtime_parameter_utils.substitute_runtime_parameter(
        ir, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: request.run_name(run_id)}
    )
    try:
        with metadata.Metadata(connection_config(request.metadata_uri)):
            pass  # the nodes that start at once find its tables
    except Exception as error:
        raise StageError(f"--metadata {request.metadata_uri}: cannot be reached: {error}") from error
    request.write(run_id)
    path = intermediate_representation(request.run_dir, run_id)
    with whole_file(path, os.path.dirname(path)) as file:
        file.write(text_format.MessageToString(ir).encode())
    return _node_ids(ir)


def run_node(run_dir: str, run_id: str, node_id: str, again: bool = False) -> None:
    """Launches one node of a compiled run in this process; the same again has nothing left to do.

    Args:
        run_dir: of the run.
        run_id: of the run.
        node_id: as the compiled pipeline has it.
        again: what is done is done anew (`pipeline.node_launcher`).

    Raises:
        InputError: the run is not compiled, or has no such node.
        StageError: what the node reads is not there.
        Exception: whatever stopped the node.
    """
    request = RunRequest.read(run_dir, run_id)
    ir = _read(run_dir, run_id)
    nodes = {node.pipeline_node.node_info.id: node.pipeline_node for node in ir.nodes}
    if node_id not in nodes:
        raise InputError(f"{node_id}: no such node in run {run_id}; there are {', '.join(nodes)}")
    node = nodes[node_id]
    deployment = runner_utils.extract_local_deployment_config(ir)
    store = metadata.Metadata(connection_config(request.metadata_uri))
    NodeLauncher(
        pipeline_node=node,
        again=again,
        mlmd_connection=store,
        pipeline_info=ir.pipeline_info,
        pipeline_runtime_spec=ir.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, node_id),
        custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, node_id),
    ).launch()
    # The launcher notes a missing input as a failure, and returns.
    if not _done(run_named(request, run_id), node_id):
        raise StageError(f"{node_id}: what it reads is not there; it follows {', '.join(node.upstream_nodes)}")


def finish(run_dir: str, run_id: str) -> dict[str, Any]:
    """Writes `summary.json` and `report.html` of a run whose nodes are done, prints a screen; returns the summary.

    Raises:
        InputError: the run is not compiled.
        StageError: it is not done.
    """
    from pipeline import summary, task_summary
    from pipeline.report.page import write_report

    request = RunRequest.read(run_dir, run_id)
    run = run_named(request, run_id)
    if left := [node for node in _node_ids(_read(run_dir, run_id)) if not _done(run, node)]:
        raise StageError(f"{run_dir}: run {run_id} has not run {', '.join(left)}; `bert-tfx run-node` runs a node")
    telling = summary if request.pretrains else task_summary
    figures = telling.summarize(run, request.resolved, run_dir)  # type: ignore[arg-type]  # the request says which
    write_report(run_dir)
    telling.print_summary(figures, run_dir)
    return figures


def graph_of(request: RunRequest) -> dict[str, tuple[str, ...]]:
    """The nodes of a request's pipeline, and which each follows, in an order in which they may run; reads no input."""
    with tempfile.TemporaryDirectory() as nowhere:
        ir = compiler.Compiler().compile(_pipeline(dataclasses.replace(request, run_dir=nowhere), None))
    return {node.pipeline_node.node_info.id: tuple(node.pipeline_node.upstream_nodes) for node in ir.nodes}


def _pipeline(request: RunRequest, inputs: RunInputs | None) -> Pipeline:
    """What a request asks for; the graph of nodes is the same without its inputs."""
    rest = request.run_dir, request.pipeline_name, request.beam_args or BEAM_PIPELINE_ARGS
    recipe: Any = request.resolved
    if request.pretrains:
        from pipeline import pretrain_dag

        files = inputs or RunInputs()
        return pretrain_dag.create_pipeline(recipe, files.text, *rest, files.vocabulary)
    from pipeline.finetune_dag import Beginning, create_pipeline

    if inputs is None:
        return create_pipeline(recipe, {}, Beginning("", ""), *rest)
    assert request.init is not None  # `find_run_inputs` sees to it
    return create_pipeline(recipe, inputs.splits, Beginning.of(request.init, request.cased), *rest)


def _done(run: Run, node_id: str) -> bool:
    return node_id in run.stages and run.stages[node_id].state in ("COMPLETE", "CACHED")


def _read(run_dir: str, run_id: str) -> pipeline_pb2.Pipeline:
    with open(intermediate_representation(run_dir, run_id), encoding="utf-8") as file:
        return text_format.Parse(file.read(), pipeline_pb2.Pipeline())


def _node_ids(ir: pipeline_pb2.Pipeline) -> list[str]:
    return [node.pipeline_node.node_info.id for node in ir.nodes]
