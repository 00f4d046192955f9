"""Attempts at a node of a run: killed, done, done anew, taken from the cache."""

from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import runtime_parameter_utils

from pipeline.node_launcher import NodeLauncher

NODE = "ImportSchemaGen"


class Killed(BaseException):
    """What `except Exception` does not see, as a kill is not seen."""


class Dies(NodeLauncher):
    """Is killed when it has written a file."""

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
        """Of each execution of a run its state, and its artifacts' states."""
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


def test_a_killed_attempt_leaves_nothing_and_counts_no_more(node):
    with pytest.raises(Killed):
        node.launch(launcher=Dies)
    assert node.states() == [("RUNNING",)] and node.files == ["1/half"]
    node.launch()
    assert node.states() == [("FAILED",), ("COMPLETE", "LIVE")]
    assert node.files == ["2/schema.pbtxt"]


def test_what_is_done_is_not_done_again(node):
    node.launch()
    node.launch(launcher=Dies)
    assert node.states() == [("COMPLETE", "LIVE")]


def test_what_is_done_is_done_anew_if_asked(node):
    node.launch()
    node.launch(again=True)
    assert node.states() == [("CANCELED", "MARKED_FOR_DELETION"), ("COMPLETE", "LIVE")]
    assert node.files == ["1/schema.pbtxt", "2/schema.pbtxt"]


def test_what_was_killed_while_it_was_done_anew_is_retried(node):
    node.launch()
    with pytest.raises(Killed):
        node.launch(again=True, launcher=Dies)
    node.launch()
    assert node.states() == [("CANCELED", "MARKED_FOR_DELETION"), ("FAILED",), ("COMPLETE", "LIVE")]
    assert node.files == ["1/schema.pbtxt", "3/schema.pbtxt"]


def test_another_run_is_served_from_the_cache_and_keeps_that(node):
    node.launch()
    node.launch("second", launcher=Dies)
    node.launch("second", again=True, launcher=Dies)
    assert node.states("second") == [("CACHED", "LIVE")]
    assert node.states() == [("COMPLETE", "LIVE")]


def test_a_first_attempt_that_is_asked_anew_does_not_ask_the_cache(node):
    node.launch()
    node.launch("second", again=True)
    assert node.states("second") == [("COMPLETE", "LIVE")]
