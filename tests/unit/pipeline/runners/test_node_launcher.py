"""Attempts at a node of a run: killed, successful, re-run, cached."""

from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import runtime_parameter_utils

from pipeline.runners.node_launcher import NodeLauncher

NODE = "ImportSchemaGen"


class Killed(BaseException):
    """Not caught by `except Exception`, like a kill."""


class Dies(NodeLauncher):
    """Is killed after writing a file."""

    def _run_executor(self, execution_info):
        Path(execution_info.output_dict["schema"][0].uri).mkdir(parents=True)
        (Path(execution_info.output_dict["schema"][0].uri) / "half").touch()
        raise Killed


class Node:
    """A node in a folder, launched in runs."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "schema.pbtxt").write_text('feature { name: "a" type: INT }')
        self.store = metadata.Metadata(metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")))

    def launch(self, run="first", again=False, launcher=NodeLauncher):
        pipeline = Pipeline(
            pipeline_name="p",
            pipeline_root=str(self.folder / "artifacts"),
            components=[ImportSchemaGen(str(self.folder / "schema.pbtxt"))],
            enable_cache=True,
        )
        ir = compiler.Compiler().compile(pipeline)
        runtime_parameter_utils.substitute_runtime_parameter(ir, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run})
        deployment = runner_utils.extract_local_deployment_config(ir)
        launcher(
            pipeline_node=ir.nodes[0].pipeline_node,
            again=again,
            mlmd_connection=self.store,
            pipeline_info=ir.pipeline_info,
            pipeline_runtime_spec=ir.runtime_spec,
            executor_spec=runner_utils.extract_executor_spec(deployment, NODE),
        ).launch()

    def states(self, run="first"):
        """State and artifacts' states of each execution of a run."""
        with self.store as handle:
            context = handle.store.get_context_by_type_and_name("pipeline_run", run)
            found = []
            for execution in sorted(handle.store.get_executions_by_context(context.id), key=lambda e: e.id):
                events = handle.store.get_events_by_execution_ids([execution.id])
                made = handle.store.get_artifacts_by_id([event.artifact_id for event in events])
                states = [metadata_store_pb2.Artifact.State.Name(artifact.state) for artifact in made]
                found.append((metadata_store_pb2.Execution.State.Name(execution.last_known_state), *states))
            return found

    @property
    def files(self):
        """Files of all attempts, by execution and name."""
        made = self.folder / "artifacts" / NODE / "schema"
        return sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file())


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_killed_attempt_leaves_nothing_and_is_failed(node):
    with pytest.raises(Killed):
        node.launch(launcher=Dies)
    assert node.states() == [("RUNNING",)] and node.files == ["1/half"]
    node.launch()
    assert node.states() == [("FAILED",), ("COMPLETE", "LIVE")]
    assert node.files == ["2/schema.pbtxt"]


def test_a_successful_node_is_not_run_again(node):
    node.launch()
    node.launch(launcher=Dies)
    assert node.states() == [("COMPLETE", "LIVE")]


def test_a_successful_node_is_re_run_on_request(node):
    node.launch()
    node.launch(again=True)
    assert node.states() == [("CANCELED", "MARKED_FOR_DELETION"), ("COMPLETE", "LIVE")]
    assert node.files == ["1/schema.pbtxt", "2/schema.pbtxt"]


def test_a_killed_re_run_is_retried(node):
    node.launch()
    with pytest.raises(Killed):
        node.launch(again=True, launcher=Dies)
    node.launch()
    assert node.states() == [("CANCELED", "MARKED_FOR_DELETION"), ("FAILED",), ("COMPLETE", "LIVE")]
    assert node.files == ["1/schema.pbtxt", "3/schema.pbtxt"]


def test_a_cached_node_is_not_re_run(node):
    node.launch()
    node.launch("second", launcher=Dies)
    node.launch("second", again=True, launcher=Dies)
    assert node.states("second") == [("CACHED", "LIVE")]
    assert node.states() == [("COMPLETE", "LIVE")]


def test_a_re_run_bypasses_the_cache_on_a_first_attempt(node):
    node.launch()
    node.launch("second", again=True)
    assert node.states("second") == [("COMPLETE", "LIVE")]
