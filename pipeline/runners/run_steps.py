"""A run as steps for an orchestrator: compile the pipeline, launch each of its nodes, finish.

A node of the compiled pipeline is the unit of execution everywhere. `pipeline.runners.local` runs them one after
another in one process; Airflow and Kubeflow start a process for each (docs/orchestration.md). TFX launches the node:
it reads inputs, cache and outputs from ML Metadata.
"""

import dataclasses
import logging
import tempfile
from typing import Any

from google.protobuf import text_format
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2

from bert_keras.errors import InputError, StageError
from bert_keras.notices import recording
from components.io.shards import write_file
from pipeline.dags.pipeline import create_pipeline
from pipeline.examples import beam_jobs
from pipeline.report.page import write_report
from pipeline.runners.node_launcher import NodeLauncher
from pipeline.runs.lineage import DONE, Run, keep_notices, run_named
from pipeline.runs.metadata_store import check_sqlite, connection_config, keep_copy, reachable
from pipeline.runs.run_dir import artifacts_dir, notices_file
from pipeline.runs.spec import RunSpec, intermediate_representation
from pipeline.stages import CORPUS_GEN
from pipeline.summaries.summary import print_summary, summarize

# Workers run in this process and need no image. Without this argument TFX builds its own package for remote workers at
# every stage, and leaves 45 MB of it in the temporary folder.
BEAM_PIPELINE_ARGS = (*beam_jobs.BEAM_PIPELINE_ARGS, "--sdk_container_image=none")


def compile_run(spec: RunSpec, run_id: str) -> list[str]:
    """Compile a run, and write the files of its later steps; return its nodes in a valid order of execution.

    InputError: an unusable file, model or location of ML Metadata. StageError: ML Metadata cannot be reached.
    """
    request = spec.request
    connection_config(request.metadata_uri)
    check_sqlite(request.metadata_uri, artifacts_dir(request.run_dir))
    ir = _compiled(spec)
    parameters = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: request.run_name(run_id)}
    runtime_parameter_utils.substitute_runtime_parameter(ir, parameters)
    with (
        reachable(request.metadata_uri, all_errors=True),
        metadata.Metadata(connection_config(request.metadata_uri)) as store,
    ):
        # Creates the tables, since nodes may start concurrently. A gRPC server is not asked before the first call.
        store.store.get_context_types()
    spec.write(run_id)
    write_file(intermediate_representation(request.run_dir, run_id), text_format.MessageToString(ir).encode())
    return _node_ids(ir)


def run_node(run_dir: str, run_id: str, node_id: str, again: bool = False) -> bool:
    """Launch one node of a compiled run in this process; a successful node is not run again, unless `again`.

    Once CorpusGen has found no new text (`--init latest`), the other nodes have nothing to do, and are not launched.
    Returns whether later nodes have something to do.

    InputError: the run is not compiled, or has no such node. StageError: the node's inputs are missing, or ML Metadata
    cannot be reached. Any error of the node is raised, too.
    """
    request = RunSpec.read(run_dir, run_id).request
    ir = _read(run_dir, run_id)
    nodes = {node.pipeline_node.node_info.id: node.pipeline_node for node in ir.nodes}
    if node_id not in nodes:
        raise InputError(f"{node_id}: no such node in run {run_id}; there are {', '.join(nodes)}")
    node = nodes[node_id]
    with reachable(request.metadata_uri):
        if node_id != CORPUS_GEN and run_named(request, run_id).read_before:
            logging.getLogger(__name__).info("%s: not run, for there is no new text", node_id)
            return False
        deployment = runner_utils.extract_local_deployment_config(ir)
        store = metadata.Metadata(connection_config(request.metadata_uri))
        launcher = NodeLauncher(
            pipeline_node=node,
            again=again,
            mlmd_connection=store,
            pipeline_info=ir.pipeline_info,
            pipeline_runtime_spec=ir.runtime_spec,
            executor_spec=runner_utils.extract_executor_spec(deployment, node_id),
            custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, node_id),
        )
        with recording(notices_file(request.run_dir, request.run_name(run_id), node_id)):
            launcher.launch()
        keep_copy(request.metadata_uri)
        # TFX's launcher records missing inputs as a failure, but does not raise.
        run = run_named(request, run_id)
        if not _done(run, node_id):
            raise StageError(f"{node_id}: inputs are missing; run {', '.join(node.upstream_nodes)} first")
        keep_notices(request.run_dir, run, node_id)
        return not run.read_before


def finish(run_dir: str, run_id: str) -> dict[str, Any]:
    """Write `summary.json` and `report.html` of a run; print its summary and return it.

    A run without new text leaves those of the run before; its summary has `new_text` false.

    InputError: the run is not compiled. StageError: a node has not run, or ML Metadata cannot be reached.
    """
    spec = RunSpec.read(run_dir, run_id)
    run = run_named(spec.request, run_id)
    if run.read_before:
        version = spec.request.latest
        print(
            f"no new text: version {version} has read all {run.read_before:,} documents, in its run or before; "
            "nothing was trained or pushed (--set corpus.reread=true reads them again)"
        )
        return {"run": run.id, "new_text": False, "blessed": False, "served_version": version}
    if pending := [node for node in _node_ids(_read(run_dir, run_id)) if not _done(run, node)]:
        raise StageError(f"{run_dir}: run {run_id} has not run {', '.join(pending)}; `bert-tfx run-node` runs a node")
    summary = summarize(run, spec, run_dir)
    write_report(run_dir)
    print_summary(summary, run_dir)
    return summary


def graph_of(spec: RunSpec) -> dict[str, tuple[str, ...]]:
    """The nodes of a pipeline and their upstream nodes, in a valid order of execution; `spec` needs no inputs."""
    with tempfile.TemporaryDirectory() as folder:
        ir = _compiled(dataclasses.replace(spec, request=dataclasses.replace(spec.request, run_dir=folder)))
    return {node.pipeline_node.node_info.id: tuple(node.pipeline_node.upstream_nodes) for node in ir.nodes}


def _compiled(spec: RunSpec) -> pipeline_pb2.Pipeline:
    return compiler.Compiler().compile(create_pipeline(spec, spec.request.beam_args or BEAM_PIPELINE_ARGS))


def _done(run: Run, node_id: str) -> bool:
    return node_id in run.stages and run.stages[node_id].state in DONE


def _read(run_dir: str, run_id: str) -> pipeline_pb2.Pipeline:
    with open(intermediate_representation(run_dir, run_id), encoding="utf-8") as file:
        return text_format.Parse(file.read(), pipeline_pb2.Pipeline())


def _node_ids(ir: pipeline_pb2.Pipeline) -> list[str]:
    return [node.pipeline_node.node_info.id for node in ir.nodes]
