"""A run in steps, each launched in this process: the first two stages for real, on some text."""

import dataclasses
import json
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from ml_metadata.errors import InternalError

from bert_keras.errors import InputError, StageError
from bert_keras.notices import notify, recording
from components.corpus_gen.readers import read_units
from pipeline.runners import run_steps
from pipeline.runners.run_steps import compile_run, finish, graph_of, run_node
from pipeline.runs.lineage import Run, latest_run, notices_of, run_named
from pipeline.runs.request import RunRequest
from pipeline.runs.resolve import resolve, without_inputs
from pipeline.runs.run_dir import notices_file
from pipeline.runs.spec import RunSpec, run_ids
from tests.support.pipeline.metadata_server import metadata_server

SETTINGS = ("model.vocab_size=40", "examples.max_seq_length=32", "model.max_position_embeddings=32")


@pytest.fixture
def request_of(tmp_path):
    """`request_of(**changes)`: a pre-training on a little text."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Words of number {n} {n * 7919}. And more words.\n\n" for n in range(300)))

    def request_of(**changes):
        values = {"run_dir": str(tmp_path / "run"), "corpus": (str(path),), "settings": SETTINGS} | changes
        values = {"name": "bert-pretrain"} | values
        return RunRequest("tiny_cpu", **values)

    return request_of


def compiled(request, run_id):
    return compile_run(resolve(request, run_id), run_id)


def states(request, run_id):
    return {name: stage.state for name, stage in run_named(request, run_id).stages.items()}


def test_nodes_run_one_by_one_and_only_once(request_of):
    request = request_of()
    nodes = compiled(request, "first")
    assert nodes[0] == "CorpusGen" and nodes[-1] == "ModelPush" and len(nodes) == 12
    assert (run_ids(request.run_dir), RunSpec.read(request.run_dir, "first").request) == (["first"], request)
    for node in ("CorpusGen", "VocabGen", "CorpusGen"):
        run_node(request.run_dir, "first", node)
    assert states(request, "first") == {"CorpusGen": "COMPLETE", "VocabGen": "COMPLETE"}
    documents = run_named(request, "first").output("CorpusGen", "documents").id

    compiled(request, "second")
    run_node(request.run_dir, "second", "CorpusGen")
    assert states(request, "second") == {"CorpusGen": "CACHED"}
    assert latest_run(request.run_dir).output("CorpusGen", "documents").id == documents


CHILD = "from bert_keras.notices import notify; notify('from a worker')"


def test_a_later_run_has_the_notices_of_its_inputs_and_of_the_stages_that_it_takes_from_the_cache(
    request_of, monkeypatch, capfd
):
    request = request_of()

    def telling(*arguments):
        notify("from the stage")
        subprocess.run([sys.executable, "-c", CHILD], check=True)
        return read_units(*arguments)

    monkeypatch.setattr("components.corpus_gen.component.read_units", telling)
    for run_id in ("first", "second"):
        compiled(request, run_id)
        with recording(notices_file(request.run_dir, request.run_name(run_id))):
            notify(f"input of the {run_id}")
        run_node(request.run_dir, run_id, "CorpusGen")
        run = run_named(request, run_id)
        assert notices_of(run, request.run_dir) == [f"input of the {run_id}", "from the stage", "from a worker"]
        told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("bert-tfx: ")]
        of_stage = ["bert-tfx: from the stage", "bert-tfx: from a worker"] if run_id == "first" else []
        assert told == [f"bert-tfx: input of the {run_id}", *of_stage]
    # A resolver's output is that of another stage, whose notices are not its own.
    stage = dataclasses.replace(run.stages["CorpusGen"], name="Baseline")
    other = Run("bert-pretrain.third", {"Baseline": stage})
    assert notices_of(other, request.run_dir) == []


def test_a_node_without_its_inputs_fails_and_can_run_later(request_of):
    request = request_of()
    compiled(request, "a")
    with pytest.raises(StageError, match="VocabGen: inputs are missing; run CorpusGen first"):
        run_node(request.run_dir, "a", "VocabGen")
    run_node(request.run_dir, "a", "CorpusGen")
    run_node(request.run_dir, "a", "VocabGen")
    assert states(request, "a")["VocabGen"] == "COMPLETE"
    with pytest.raises(StageError, match=r"run a has not run ImportSchemaGen, PretrainExampleGen, .*, ModelPush"):
        finish(request.run_dir, "a")


def overwritten(path):
    content = bytearray(path.read_bytes())
    content[8192:40000] = b"\x07" * (40000 - 8192)
    path.write_bytes(content)


def test_a_damaged_metadata_file_stops_a_run_before_it_starts_and_its_copy_restores_it(request_of):
    request = request_of()
    compiled(request, "a")
    run_node(request.run_dir, "a", "CorpusGen")
    store, copy = Path(request.run_dir, "metadata.sqlite"), Path(request.run_dir, "metadata.sqlite.copy")
    for lose, said in (
        (Path.unlink, "is missing or empty"),
        (lambda path: path.write_bytes(b""), "is missing or empty"),
        (lambda path: path.write_bytes(b"garbage" * 1000), "is damaged (file is not a database)"),
        (overwritten, "is damaged ("),
    ):
        lose(store)
        lost = store.read_bytes() if store.exists() else None
        for use in (lambda: compiled(request, "b"), lambda: latest_run(request.run_dir)):
            with pytest.raises(InputError) as refused:
                use()
            message = str(refused.value)
            assert message.startswith(f"{store}: {said}") and f"; cp {copy} {store}, or move" in message
        assert (store.read_bytes() if store.exists() else None) == lost and run_ids(request.run_dir) == ["a"]
        store.write_bytes(copy.read_bytes())

    compiled(request, "b")
    run_node(request.run_dir, "b", "CorpusGen")
    assert states(request, "b") == {"CorpusGen": "CACHED"}
    assert sorted(path.name for path in Path(request.run_dir).glob("metadata*")) == [store.name, copy.name]


def test_a_full_disk_under_ml_metadata_is_one_line(request_of, monkeypatch):
    """Errors as observed on a file system of 600 KB."""
    request = request_of()
    compiled(request, "a")
    full = "Error when executing query: database or disk is full query:  INSERT INTO `Type`(`name`) VALUES('X');"

    def fail(*_):
        raise InternalError(full)

    monkeypatch.setattr(run_steps.NodeLauncher, "launch", fail)
    with pytest.raises(StageError) as stopped:
        run_node(request.run_dir, "a", "CorpusGen")
    line = f"--metadata {request.metadata_uri}: Error when executing query: database or disk is full; make it writable"
    assert str(stopped.value).startswith(line)
    monkeypatch.setattr(run_steps.metadata, "Metadata", fail)
    with pytest.raises(StageError) as stopped:
        compiled(request, "b")
    assert str(stopped.value).startswith(line) and "\n" not in str(stopped.value)


def test_without_a_server_of_ml_metadata_the_first_step_says_so(request_of):
    """Releases of Kubeflow Pipelines without it: the first step passed, the second burned its retries."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        request = request_of(metadata=f"grpc://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(
            StageError, match=r"^--metadata grpc://127.*cannot be reached: .*compile without it"
        ) as stopped:
            compiled(request, "a")
    assert "\n" not in str(stopped.value) and not run_ids(request.run_dir)
    # A server that goes away later: each node says it, too.
    compiled(request_of(), "b")
    without_inputs(request).write("b")
    with pytest.raises(StageError, match=r"^--metadata grpc://127.*cannot be reached"):
        run_node(request.run_dir, "b", "CorpusGen")


def test_a_server_of_ml_metadata_and_a_file_give_the_same_bytes(request_of, tmp_path):
    """Releases of Kubeflow Pipelines with and without the server; a second run takes all from the cache."""
    shards = {}
    with metadata_server(tmp_path / "server.sqlite") as server:
        for name, store in (("file", ""), ("server", server)):
            request = request_of(run_dir=str(tmp_path / name), metadata=store)
            for run_id, state in (("a", "COMPLETE"), ("b", "CACHED")):
                compiled(request, run_id)
                nodes = ("CorpusGen", "VocabGen", "PretrainExampleGen")
                for node in nodes:
                    run_node(request.run_dir, run_id, node)
                assert states(request, run_id) == dict.fromkeys(nodes, state)
            examples = Path(run_named(request, "b").output("PretrainExampleGen", "examples").uri)
            shards[name] = {str(p.relative_to(examples)): p.read_bytes() for p in examples.glob("Split-*/*")}
    assert shards["file"] == shards["server"] and len(shards["file"]) > 1


def test_two_pipelines_share_a_store_and_a_run_id(request_of, tmp_path):
    """With equal text too: each pipeline has its own run, and does not use the other's cache."""
    store = f"sqlite:{tmp_path}/shared.sqlite"
    requests = [request_of(run_dir=str(tmp_path / name), name=name, metadata=store) for name in ("one", "other")]
    for request in requests:
        compiled(request, "same")
    for request in requests:
        run_node(request.run_dir, "same", "CorpusGen")
    assert [states(request, "same") for request in requests] == [{"CorpusGen": "COMPLETE"}] * 2
    uris = [run_named(request, "same").output("CorpusGen", "documents").uri for request in requests]
    assert [uri.startswith(request.run_dir) for uri, request in zip(uris, requests, strict=True)] == [True, True]


def test_unknown_runs_and_nodes_are_one_line(request_of):
    request = request_of()
    with pytest.raises(InputError, match=r"compiled/a\.json: no such file; `bert-tfx compile nodes`"):
        run_node(request.run_dir, "a", "CorpusGen")
    with pytest.raises(InputError, match=r"--run-id '\.\./a': must be up to 200 of letters, digits"):
        run_node(request.run_dir, "../a", "CorpusGen")
    compiled(request, "a")
    with pytest.raises(InputError, match=r"Corpus: no such node in run a; there are CorpusGen, "):
        run_node(request.run_dir, "a", "Corpus")
    with pytest.raises(InputError, match="--metadata oracle:x"):
        compiled(request_of(metadata="oracle:x"), "b")


def test_the_graph_of_a_request_reads_no_input(request_of, tmp_path):
    request = request_of(corpus=(), run_dir=str(tmp_path / "not-made"))
    graph = graph_of(without_inputs(request))
    assert graph["CorpusGen"] == () and graph["VocabGen"] == ("CorpusGen",)
    assert {"ExampleGate", "PretrainExampleGen"} <= set(graph["Trainer"])
    assert not (tmp_path / "not-made").exists()
    seen = set()
    for node, upstream in graph.items():
        assert set(upstream) <= seen, node
        seen.add(node)
    assert list(graph_of(without_inputs(RunRequest("sst-2", "/nowhere"))))[:2] == ["TaskExampleGen", "Trainer"]


def test_the_request_is_plain_data_without_credentials(request_of, monkeypatch):
    """In files and messages, whether the store is reachable or not."""
    monkeypatch.setenv("BERT_TFX_METADATA_PASSWORD", "planted-secret")
    request = request_of(metadata="mysql://me@127.0.0.1:1/db")
    with pytest.raises(StageError, match="cannot be reached") as said:
        compiled(request, "a")
    assert "planted-secret" not in str(said.value)
    assert not Path(request.run_dir, "compiled").exists()

    reached = []
    monkeypatch.setattr(run_steps.metadata, "Metadata", lambda config: reached.append(config) or nullcontext(Mock()))
    compiled(request, "a")
    assert [config.mysql.password for config in reached] == ["planted-secret"]
    files = {path.name: path.read_text() for path in Path(request.run_dir, "compiled").iterdir()}
    assert set(files) == {"a.json", "a.pbtxt"}
    assert json.loads(files["a.json"])["request"]["metadata"] == "mysql://me@127.0.0.1:1/db"
    assert "planted-secret" not in "".join(files.values())
