"""Runs read from ML Metadata, and how its store is reached."""

import contextlib
import json

import pytest
from ml_metadata import errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from bert_keras.errors import InputError, StageError
from pipeline.runs.lineage import ArtifactRecord, documents_of_version, latest_run, run_named
from pipeline.runs.metadata_store import PASSWORD_VARIABLE, connection_config, reachable
from pipeline.runs.request import RunRequest
from pipeline.runs.resolve import without_inputs
from pipeline.runs.run_dir import metadata_file


class Store:
    """Writes runs like TFX: a context per run and per node, an execution per stage, an event per input or output.

    The event of an artifact that is two inputs has both keys.
    """

    def __init__(self, run_dir):
        self.run_dir = run_dir
        config = mlmd.ConnectionConfig()
        config.sqlite.filename_uri = metadata_file(str(run_dir))
        config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        self.store = metadata_store.MetadataStore(config)
        self.context_types = {
            name: self.store.put_context_type(mlmd.ContextType(name=name)) for name in ("pipeline_run", "node")
        }
        self.execution_type = self.store.put_execution_type(mlmd.ExecutionType(name="stage"))
        self.artifact_type = self.store.put_artifact_type(
            mlmd.ArtifactType(name="Model", properties={"version": mlmd.INT})
        )

    def context(self, type_name, name):
        context = mlmd.Context(type_id=self.context_types[type_name], name=name)
        (context.id,) = self.store.put_contexts([context])
        return context

    def run(self, run_id, name="bert-pretrain", begun=False):
        """The state after compilation and, once a stage has started, TFX's context."""
        request = RunRequest("tiny_cpu", str(self.run_dir), name=name)
        without_inputs(request).write(run_id)
        return self.context("pipeline_run", request.run_name(run_id)) if begun else None

    def artifact(self, uri):
        artifact = mlmd.Artifact(type_id=self.artifact_type, uri=uri)
        artifact.properties["version"].int_value = 3
        artifact.custom_properties["blessed"].int_value = 1
        artifact.custom_properties["name"].string_value = "m"
        (artifact.id,) = self.store.put_artifacts([artifact])
        return artifact

    def execution(self, state, contexts, inputs=(), outputs=()):
        execution = mlmd.Execution(type_id=self.execution_type, last_known_state=state)
        events = {}
        for kind, pairs in ((mlmd.Event.INPUT, inputs), (mlmd.Event.OUTPUT, outputs)):
            for index, (key, artifact) in enumerate(pairs):
                new = mlmd.Event(type=kind, artifact_id=artifact.id)
                _, event = events.setdefault((kind, artifact.id), (artifact, new))
                event.path.steps.add().key = key
                event.path.steps.add().index = index
        self.store.put_execution(execution, list(events.values()), contexts)


def test_a_directory_without_a_run_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no run here; bert-tfx pretrain or finetune makes one"):
        latest_run(str(tmp_path))
    Store(tmp_path).run("never-begun")
    with pytest.raises(InputError, match="no run here; bert-tfx pretrain or finetune makes one"):
        latest_run(str(tmp_path))


def test_the_newest_run_is_read(tmp_path):
    store = Store(tmp_path)
    nodes = {name: store.context("node", f"bert-pretrain.{name}") for name in ("CorpusGen", "Trainer", "Push.er")}
    old = store.run("old", begun=True)
    store.execution(mlmd.Execution.COMPLETE, [old, nodes["Push.er"]])
    new = store.run("new", begun=True)
    text, model = store.artifact("/text"), store.artifact("/model")
    store.execution(mlmd.Execution.CACHED, [new, nodes["CorpusGen"]], outputs=[("documents", text)])
    inputs = [("a", text), ("a", model), ("c", model)]
    store.execution(mlmd.Execution.COMPLETE, [new, nodes["Trainer"]], inputs=inputs, outputs=[("b", model)])
    store.execution(mlmd.Execution.FAILED, [new, nodes["Push.er"]])

    store.run("only-compiled")
    store.context("pipeline_run", "of-another-pipeline.newest")

    run = latest_run(str(tmp_path))
    assert run.id == "bert-pretrain.new"
    assert {name: stage.state for name, stage in run.stages.items()} == {
        "CorpusGen": "CACHED",
        "Trainer": "COMPLETE",
        "Push.er": "FAILED",
    }
    properties = {"version": 3, "blessed": 1, "name": "m"}
    records = [ArtifactRecord(a.id, "Model", a.uri, properties) for a in (text, model)]
    trainer = run.stages["Trainer"]
    assert trainer.inputs == {"a": records, "c": records[1:]} and trainer.outputs == {"b": records[1:]}
    assert run.output("CorpusGen", "documents") == records[0]
    assert run.stages["Push.er"].inputs == run.stages["Push.er"].outputs == {}
    assert trainer.seconds >= 0 and trainer.started > 1.7e9


class Nights:
    """A run that pushed version 7 from the documents in `folder`, and runs that continue it."""

    def __init__(self, tmp_path):
        self.run_dir, self.folder, self.store = tmp_path, tmp_path / "documents", Store(tmp_path)
        self.folder.mkdir()
        self.node = self.store.context("node", "bert-pretrain.CorpusGen")
        self.request = RunRequest("tiny_cpu", str(tmp_path), init="latest", name="bert-pretrain", latest="7")

    def pushed(self, run):
        extra = self.run_dir / "serving" / "7" / "assets.extra"
        extra.mkdir(parents=True)
        (extra / "lineage.json").write_text(json.dumps({"run": run}))

    def read(self, run_id, counts, state=mlmd.Execution.COMPLETE, inputs=True):
        run = self.store.run(run_id, begun=True)
        documents = self.store.artifact(str(self.folder))
        (self.folder / "corpus.json").write_text(json.dumps(counts))
        earlier = [("earlier", documents)] if inputs else []
        self.store.execution(state, [run, self.node], inputs=earlier, outputs=[("documents", documents)])


NOTHING = {"train": {"documents": 0}, "eval": {"documents": 0}, "read": {"read_before": 20}}
SOME = {"train": {"documents": 3}, "eval": {"documents": 0}, "read": {"read_before": 20}}


def test_the_documents_of_a_version_are_found_by_the_run_that_pushed_it(tmp_path):
    nights = Nights(tmp_path)
    with pytest.raises(InputError, match=r"the run that pushed .*/serving/7 is not recorded here; --set"):
        documents_of_version(nights.request)
    nights.pushed("bert-pretrain.first")
    with pytest.raises(InputError, match=r"is not recorded here; --set corpus\.reread=true reads all"):
        documents_of_version(nights.request)
    nights.read("first", SOME, inputs=False)
    nights.read("refused", SOME)
    with pytest.raises(InputError, match=r"has no documents_read\.u64, what version 7 read; --set corpus\.reread=true"):
        documents_of_version(nights.request)
    (nights.folder / "documents_read.u64").touch()
    assert documents_of_version(nights.request) == str(nights.folder)


@pytest.mark.parametrize(
    ("counts", "inputs", "state", "read_before"),
    [
        (NOTHING, True, mlmd.Execution.COMPLETE, 20),
        (NOTHING, True, mlmd.Execution.CACHED, 20),
        (NOTHING, True, mlmd.Execution.FAILED, 0),
        (SOME, True, mlmd.Execution.COMPLETE, 0),
        (NOTHING, False, mlmd.Execution.COMPLETE, 0),  # no run that continues another
    ],
)
def test_a_run_without_new_text_is_none_to_report(tmp_path, counts, inputs, state, read_before):
    nights = Nights(tmp_path)
    before = nights.store.run("before", begun=True)
    nights.store.execution(mlmd.Execution.COMPLETE, [before, nights.node])
    nights.read("tonight", counts, state, inputs)
    assert run_named(nights.request, "tonight").read_before == read_before
    assert latest_run(str(tmp_path)).id == f"bert-pretrain.{'before' if read_before else 'tonight'}"


def test_each_kind_of_store_has_its_connection(monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, "s p:ce'\\")
    assert connection_config("sqlite:/runs/a b/metadata.sqlite").sqlite.filename_uri == "/runs/a b/metadata.sqlite"
    mysql = connection_config("mysql://me@db.example:3307/mlmd").mysql
    assert (mysql.host, mysql.port, mysql.database, mysql.user, mysql.password) == (
        "db.example", 3307, "mlmd", "me", "s p:ce'\\",
    )  # fmt: skip
    assert connection_config("mysql://me@127.0.0.1/mlmd").mysql.port == 3306
    grpc = connection_config("grpc://metadata-grpc-service.kubeflow:8080")
    assert (grpc.host, grpc.port) == ("metadata-grpc-service.kubeflow", 8080)


@pytest.mark.parametrize(
    "uri",
    [
        "", "sqlite", "sqlite:", "/runs/metadata.sqlite", "oracle://me@host/db", "mysql://host/db", "mysql://me@host",
        "mysql://me@/db", "grpc://host", "grpc://me@host:8080", "grpc://host:8080/db", "mysql://me@host:port/db", "postgresql://me@host/db",
    ],
)  # fmt: skip
def test_invalid_locations_are_one_line(uri):
    with pytest.raises(InputError, match=r"must be sqlite:FILE, mysql://USER@HOST"):
        connection_config(uri)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(InputError, match=PASSWORD_VARIABLE) as refused:
        connection_config("mysql://me:planted-secret@host/db")
    assert "planted-secret" not in str(refused.value)
    assert "mysql://me:***@host" in str(refused.value)


def told(uri, error):
    """The line that an error inside `reachable` ends with."""
    with pytest.raises(StageError) as stopped, reachable(uri):
        raise error
    assert "\n" not in str(stopped.value)
    return str(stopped.value)


@pytest.mark.parametrize(
    "error",
    [
        errors.UnavailableError("no route\nto host"),
        errors.DeadlineExceededError("late"),
        RuntimeError("mysql_real_connect failed: errno: , error:"),
    ],
)
def test_a_store_that_does_not_answer_is_one_line(error):
    first = str(error).splitlines()[0]
    assert told("mysql://me@h/d", error) == f"--metadata mysql://me@h/d: cannot be reached: {first}"
    line = told("grpc://h:1", error)
    assert line.startswith(f"--metadata grpc://h:1: cannot be reached: {first}; newer") and "Kubeflow" in line


def test_a_run_in_a_store_that_is_gone_is_one_line(tmp_path):
    request = RunRequest("tiny_cpu", str(tmp_path), name="r", metadata="mysql://me@127.0.0.1:1/mlmd")
    line = r"^--metadata mysql://[^ ]*/mlmd: cannot be reached: mysql_real[^\n]*$"
    for around in (contextlib.nullcontext(), reachable(request.metadata_uri)):  # as `report`, as `run_node`
        with pytest.raises(StageError, match=line), around:
            run_named(request, "one")


def test_a_full_disk_is_told_and_a_stages_own_error_stays_what_it_is():
    full = errors.InternalError("query: database or disk is full")
    assert "database or disk is full; make it writable" in told("sqlite:/x", full)
    for error in (errors.InvalidArgumentError("a defect"), ValueError("a stage's"), OSError(28, "disk", "/x")):
        with pytest.raises(type(error)), reachable("grpc://h:1"):
            raise error
