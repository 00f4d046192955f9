"""Records of a run in ML Metadata: its stages, with their inputs, outputs and notices."""

import dataclasses
import os

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2

from bert_keras.errors import InputError
from bert_keras.notices import recorded
from pipeline import stages
from pipeline.runs.metadata_store import check_sqlite, connection_config, reachable
from pipeline.runs.request import RunRequest
from pipeline.runs.run_dir import artifacts_dir, notices_file, serving_dir
from pipeline.runs.spec import RunSpec, run_ids

DONE = ("COMPLETE", "CACHED")


@dataclasses.dataclass(frozen=True)
class ArtifactRecord:
    """An artifact; `properties` are its own and its custom ones, as text or numbers."""

    id: int
    type: str
    uri: str
    properties: dict[str, str | int | float]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A node's execution in a run; `state` is ML Metadata's, e.g. COMPLETE, CACHED, FAILED."""

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

    def output(self, stage: str, key: str) -> ArtifactRecord:
        """The only artifact of a stage's output."""
        (artifact,) = self.stages[stage].outputs[key]
        return artifact

    @property
    def initial_model(self) -> ArtifactRecord | None:
        """The model at step 0 of a pre-training with `--init`; None without."""
        return self.output(stages.INITIAL_MODEL, stages.MODEL) if stages.INITIAL_MODEL in self.stages else None

    @property
    def read_before(self) -> int:
        """Number of documents that the initial model has read, if there are no others; 0: there is text to train on."""
        stage = self.stages.get(stages.CORPUS_GEN)
        if stage is None or stages.EARLIER not in stage.inputs or stage.state not in DONE:
            return 0
        from components.corpus_gen.record.card import COUNTS_FILE, READ
        from components.corpus_gen.sorted_runs import SPLITS
        from components.io.shards import read_json

        counts = read_json(f"{self.output(stages.CORPUS_GEN, stages.DOCUMENTS).uri}/{COUNTS_FILE}")
        return 0 if any(counts[split]["documents"] for split in SPLITS) else counts[READ]["read_before"]


def latest_run(run_dir: str) -> Run:
    """Read the newest run of a run directory that has at least one stage, and had text to train on; or InputError."""
    for run_id in run_ids(run_dir):
        request = RunSpec.read(run_dir, run_id).request
        check_sqlite(request.metadata_uri, artifacts_dir(run_dir))
        run = run_named(request, run_id)
        if run.stages and not run.read_before:
            return run
    raise InputError(f"{run_dir}: no run here; bert-tfx pretrain or finetune makes one")


def documents_of_version(request: RunRequest) -> str:
    """The folder of the documents that the run of `request.latest` read; it has the ids of those before it, too.

    The version itself names its run: a push that was killed before ML Metadata had it is found, too. InputError: the
    version, its run or its documents are gone, or from a version of this program without ids.
    """
    from apache_beam.io.filesystems import FileSystems

    from bert_keras.saved_model.saved_model_files import EXTRA_FOLDER
    from components.corpus_gen.transforms import READ_FILE
    from components.io.shards import read_json
    from components.pusher.lineage import LINEAGE_FILE

    version = os.path.join(serving_dir(request.run_dir), request.latest)
    remedy = "--set corpus.reread=true reads all documents"
    try:
        pipeline_run = read_json(os.path.join(version, EXTRA_FOLDER, LINEAGE_FILE))["run"]
        run_id = next(run_id for run_id in run_ids(request.run_dir) if pipeline_run.endswith(f".{run_id}"))
        run = run_named(RunSpec.read(request.run_dir, run_id).request, run_id)
        documents = run.output(stages.CORPUS_GEN, stages.DOCUMENTS).uri
    except (FileNotFoundError, StopIteration, KeyError) as error:
        raise InputError(f"--init latest: the run that pushed {version} is not recorded here; {remedy}") from error
    if not FileSystems.exists(f"{documents}/{READ_FILE}"):
        raise InputError(f"--init latest: {documents} has no {READ_FILE}, what version {request.latest} read; {remedy}")
    return documents


def run_named(request: RunRequest, run_id: str) -> Run:
    """Read a run; it has no stages before the first one has started. StageError: ML Metadata cannot be reached."""
    name = request.run_name(run_id)
    with reachable(request.metadata_uri):
        store = metadata_store.MetadataStore(connection_config(request.metadata_uri))
        if (context := store.get_context_by_type_and_name("pipeline_run", name)) is None:
            return Run(name, {})
        executions = sorted(store.get_executions_by_context(context.id), key=lambda e: e.id)
        return Run(name, {stage.name: stage for stage in (_stage(store, execution) for execution in executions)})


def _stage(store: metadata_store.MetadataStore, execution: metadata_store_pb2.Execution) -> Stage:
    (node,) = (c for c in store.get_contexts_by_execution(execution.id) if c.type == "node")
    inputs: dict[str, list[ArtifactRecord]] = {}
    outputs: dict[str, list[ArtifactRecord]] = {}
    events = store.get_events_by_execution_ids([execution.id])
    stored = store.get_artifacts_by_id([event.artifact_id for event in events])
    artifacts = {a.id: ArtifactRecord(a.id, a.type, a.uri, _properties(a)) for a in stored}
    for event in events:
        is_input = event.type in (metadata_store_pb2.Event.INPUT, metadata_store_pb2.Event.DECLARED_INPUT)
        into = inputs if is_input else outputs
        # An artifact that is two inputs, as an initial model that is the baseline, has one event with both names.
        for key in (step.key for step in event.path.steps if step.HasField("key")):
            into.setdefault(key, []).append(artifacts[event.artifact_id])
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


def _properties(record: metadata_store_pb2.Artifact | metadata_store_pb2.Execution) -> dict[str, str | int | float]:
    pairs = [*record.properties.items(), *record.custom_properties.items()]
    return {name: getattr(value, value.WhichOneof("value") or "string_value") for name, value in pairs}


def keep_notices(run_dir: str, run: Run, node: str) -> None:
    """Name the notices of a finished stage by its output, by which a later run that takes it from the cache finds them.

    A stage from the cache has none of its own.
    """
    path, output_path = notices_file(run_dir, run.id, node), _notices_of_output(run_dir, run.stages[node])
    if output_path and os.path.exists(path):
        os.replace(path, output_path)


def notices_of(run: Run, run_dir: str) -> list[str]:
    """The notices of a run and of the earlier runs whose outputs it uses, each once."""
    paths = [notices_file(run_dir, run.id), *(_notices_of_output(run_dir, stage) for stage in run.stages.values())]
    return list(dict.fromkeys(notice for path in paths for notice in recorded(path)))


def _notices_of_output(run_dir: str, stage: Stage) -> str:
    """Its path; empty for a stage without outputs. The resolver's output is another stage's."""
    ids = [artifact.id for artifacts in stage.outputs.values() for artifact in artifacts]
    return notices_file(run_dir, f"artifact-{min(ids)}", stage.name) if ids else ""
