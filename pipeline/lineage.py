"""What ML Metadata knows of a run: its stages, and what each took and gave."""

from __future__ import annotations

import dataclasses
import os

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2

from bert_keras.errors import InputError
from pipeline.run_dir import metadata_file


@dataclasses.dataclass(frozen=True)
class ArtifactRecord:
    """One artifact; `properties` are its own and its custom ones, as text or numbers."""

    id: int
    type: str
    uri: str
    properties: dict[str, str | int | float]


@dataclasses.dataclass(frozen=True)
class Stage:
    """One node's execution in a run; `state` is ML Metadata's, e.g. COMPLETE, CACHED, FAILED."""

    name: str
    state: str
    started: float
    seconds: float
    properties: dict[str, str | int | float]
    inputs: dict[str, list[ArtifactRecord]]
    outputs: dict[str, list[ArtifactRecord]]


@dataclasses.dataclass(frozen=True)
class Run:
    """A pipeline run; `stages` by name, in the order in which they started."""

    id: str
    stages: dict[str, Stage]

    @property
    def judged_examples(self) -> str:
        """The stage whose examples the model is judged on: those of the last phase."""
        return max((name for name in self.stages if name.startswith("PretrainExampleGen")), key=len)

    def output(self, stage: str, key: str) -> ArtifactRecord:
        """The one artifact a stage gave under a key."""
        (artifact,) = self.stages[stage].outputs[key]
        return artifact


def latest_run(run_dir: str) -> Run:
    """The newest run of a run directory.

    Raises:
        InputError: there is none.
    """
    path = metadata_file(run_dir)
    if not os.path.exists(path):
        raise InputError(f"{run_dir}: no run here (it has no {os.path.basename(path)}); bert-tfx pretrain makes one")
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = path
    store = metadata_store.MetadataStore(config)
    runs = store.get_contexts_by_type("pipeline_run")
    if not runs:
        raise InputError(f"{run_dir}: no run here; bert-tfx pretrain makes one")
    run = max(runs, key=lambda context: context.create_time_since_epoch)
    executions = sorted(store.get_executions_by_context(run.id), key=lambda e: e.id)
    stages = [_stage(store, execution) for execution in executions]
    return Run(run.name, {stage.name: stage for stage in stages})


def _stage(store: metadata_store.MetadataStore, execution: metadata_store_pb2.Execution) -> Stage:
    (node,) = (c for c in store.get_contexts_by_execution(execution.id) if c.type == "node")
    inputs: dict[str, list[ArtifactRecord]] = {}
    outputs: dict[str, list[ArtifactRecord]] = {}
    events = store.get_events_by_execution_ids([execution.id])
    artifacts = {a.id: a for a in store.get_artifacts_by_id([e.artifact_id for e in events])}
    for event in events:
        is_input = event.type in (metadata_store_pb2.Event.INPUT, metadata_store_pb2.Event.DECLARED_INPUT)
        key = next((step.key for step in event.path.steps if step.HasField("key")), "")
        into = inputs if is_input else outputs
        into.setdefault(key, []).append(_artifact(artifacts[event.artifact_id]))
    started, ended = execution.create_time_since_epoch / 1000, execution.last_update_time_since_epoch / 1000
    return Stage(
        name=node.name.partition(".")[2],
        state=metadata_store_pb2.Execution.State.Name(execution.last_known_state),
        started=started,
        seconds=round(ended - started, 3),
        properties=_properties(execution),
        inputs=inputs,
        outputs=outputs,
    )


def _artifact(artifact: metadata_store_pb2.Artifact) -> ArtifactRecord:
    return ArtifactRecord(artifact.id, artifact.type, artifact.uri, _properties(artifact))


def _properties(
    record: metadata_store_pb2.Artifact | metadata_store_pb2.Execution,
) -> dict[str, str | int | float]:
    pairs = [*record.properties.items(), *record.custom_properties.items()]
    return {name: getattr(value, value.WhichOneof("value") or "string_value") for name, value in pairs}
