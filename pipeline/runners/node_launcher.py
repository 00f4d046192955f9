"""TFX's node launcher, with one execution per attempt.

TFX gives a node one execution per run: a second attempt overwrites the outputs of the first, and ML Metadata records it
as the first, with the first's inputs; a successful node never runs again. Here an attempt that ended without success
is marked as failed and its outputs are removed; the next attempt is a new execution.
"""

import logging
import os
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.io import fileio
from tfx.orchestration import metadata
from tfx.orchestration.portable import execution_publish_utils, launcher
from tfx.orchestration.portable.mlmd import execution_lib

from bert_keras.notices import notify

_State = metadata_store_pb2.Execution


class NodeLauncher(launcher.Launcher):
    """Launches one node of a run.

    `again` re-runs the node even if it succeeded, bypassing the cache; the earlier outputs stay, unused by the run. A
    node whose result was cached is not re-run: the result belongs to another run.
    """

    def __init__(self, pipeline_node: Any, again: bool, **options: Any):
        super().__init__(pipeline_node=pipeline_node, **options)
        self._again = again
        if again:
            pipeline_node.execution_options.caching_options.enable_cache = False

    def _register_or_reuse_execution(
        self,
        metadata_handle: metadata.Metadata,
        contexts: list[metadata_store_pb2.Context],
        input_artifacts: Any = None,
        exec_properties: Any = None,
    ) -> metadata_store_pb2.Execution:
        earlier = execution_lib.get_executions_associated_with_all_contexts(metadata_handle, contexts)
        done = [execution for execution in earlier if execution_lib.is_execution_successful(execution)]
        cached = [e for e in done if e.last_known_state == _State.CACHED]
        if cached and self._again:
            notify("the result came from the cache and belongs to another run; the node is not re-run")
        if done and (cached or not self._again):
            logging.info("finished already: execution %d", done[-1].id)
            return done[-1]
        for execution in earlier:
            self._close(metadata_handle.store, execution)
        return execution_publish_utils.register_execution(
            metadata_handle=metadata_handle,
            execution_type=self._pipeline_node.node_info.type,
            contexts=contexts,
            input_artifacts=input_artifacts,
            exec_properties=exec_properties,
        )

    def _close(self, store: Any, execution: metadata_store_pb2.Execution) -> None:
        """Retire an earlier attempt; remove the outputs of an unfinished one."""
        # Successful, or superseded by a re-run.
        if execution.last_known_state in (_State.COMPLETE, _State.CANCELED):
            state = _State.CANCELED
        else:
            state = _State.FAILED
            outputs = self._output_resolver.generate_output_artifacts(execution.id)
            folders = [artifact.uri for artifacts in outputs.values() for artifact in artifacts]
            for folder in [*folders, os.path.dirname(self._output_resolver.get_executor_output_uri(execution.id))]:
                if fileio.exists(folder):
                    fileio.rmtree(folder)
        # The state comes first: if this stops in between, the next attempt repeats the rest.
        execution.last_known_state = state
        store.put_executions([execution])
        events = store.get_events_by_execution_ids([execution.id])
        made = store.get_artifacts_by_id([e.artifact_id for e in events if e.type == metadata_store_pb2.Event.OUTPUT])
        for artifact in made:
            artifact.state = metadata_store_pb2.Artifact.MARKED_FOR_DELETION
        store.put_artifacts(made)
