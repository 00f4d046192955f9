"""Airflow for real: scheduler, databases, two pipelines, tasks killed and cleared. Takes minutes: run by hand."""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.error
from pathlib import Path

import psutil
import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2

from pipeline.runs.metadata_store import connection_config
from scripts.airflow_api import AirflowApi
from scripts.airflow_stack import AIRFLOW, ROOT, airflow_stack
from tests.support.pipeline.command_line import SMALL, set_words, summary_of
from tests.support.pipeline.task_files import write_task

BERT_TFX = ROOT / ".venv" / "bin" / "bert-tfx"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not AIRFLOW.exists(), reason="no .venv-airflow (scripts/setup_beside.sh airflow)"),
    pytest.mark.skipif(shutil.which("mariadbd") is None, reason="no mariadbd (apt install mariadb-server)"),
]
SETTINGS = set_words(SMALL)
RUN = "by-hand"
ENDED = {"success", "failed", "skipped", "upstream_failed"}
# Times and names.
NOT_COMPARED = ("run", "seconds_by_stage", "pushed_version", "served_version", "serving")


class Airflow(AirflowApi):
    """The Airflow of a stack."""

    def __init__(self, environ):
        super().__init__(environ)
        self.environ = environ

    def wait(self, *dags, run=RUN):
        """Wait until all tasks have ended."""
        while not all(set(self.states(dag, run).values()) <= ENDED for dag in dags):
            time.sleep(2)

    def wait_for_file(self, dag):
        """Wait until Airflow has read the tasks of a plan."""
        dags = Path(self.environ["AIRFLOW__CORE__DAGS_FOLDER"])
        wanted = {"compile", "finish", *json.loads((dags / f"{dag}.json").read_text())["nodes"]}
        while True:
            with contextlib.suppress(urllib.error.HTTPError):
                if {task["task_id"] for task in self("GET", f"dags/{dag}/tasks")["tasks"]} == wanted:
                    return
            time.sleep(1)

    def attempts(self, folder, dag, task):
        """The logs of a task's attempts."""
        return sorted((folder / "logs" / f"dag_id={dag}" / f"run_id={RUN}" / f"task_id={task}").glob("attempt=*.log"))


@pytest.fixture(scope="module")
def local(tmp_path_factory, corpus):
    """The same corpus and settings without Airflow."""
    run_dir = tmp_path_factory.mktemp("local") / "run"
    words = ["pretrain", "tiny_cpu", "--corpus", corpus, "--run-dir", run_dir, *SETTINGS]
    done = subprocess.run([BERT_TFX, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return run_dir


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus):
    """Two pipelines at once on one ML Metadata; a task of each is killed."""
    folder = tmp_path_factory.mktemp("airflow")
    dags = folder / "dags"
    with airflow_stack(folder, dags) as environ:
        metadata = environ["BERT_TFX_METADATA_URI"]
        for name in ("one", "two"):
            words = ["--name", name, "--run-dir", folder / name, "--corpus", corpus, *SETTINGS]
            compiled = [BERT_TFX, "compile", "airflow", "tiny_cpu", *words, "--output", dags]
            subprocess.run([*compiled, "--metadata", metadata], env=environ, check=True)
        airflow = Airflow(environ)
        os.environ["BERT_TFX_METADATA_PASSWORD"] = environ["BERT_TFX_METADATA_PASSWORD"]
        store = metadata_store.MetadataStore(connection_config(metadata))
        for name in ("one", "two"):
            airflow.trigger(name, RUN)
        # In one pipeline the process of Airflow's task, in the other the command.
        running(store, folder / "one", "PretrainExampleGen").parent().kill()
        running(store, folder / "two", "Trainer").kill()
        airflow.wait("one", "two")
        yield folder, airflow, store
        del os.environ["BERT_TFX_METADATA_PASSWORD"]


def running(store, run_dir, node):
    """The command of a node once ML Metadata has its execution; killed earlier, it would leave no failed one."""
    while node not in executions(store, run_dir.name):
        time.sleep(0.2)
    words = ["run-node", node, "--run-dir", str(run_dir)]
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if any(line[at : at + 4] == words for at in range(len(line))):
            return process
    raise AssertionError(f"{node} of {run_dir} ended before it was killed")


def newest(run_dir, node, key, part):
    """Files of the newest artifact of a node."""
    made = max((run_dir / "artifacts" / node / key).iterdir(), key=lambda path: int(path.name))
    return {path.relative_to(made).as_posix(): path.read_bytes() for path in made.glob(part) if path.is_file()}


def figures(run_dir):
    """A figure of a run's summary, by its dotted name."""
    summary = summary_of(run_dir)
    return dict(flat({key: value for key, value in summary.items() if key not in NOT_COMPARED}))


def flat(value, name=""):
    if not isinstance(value, (dict, list)):
        yield name, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from flat(inner, f"{name}.{key}")


def executions(store, name):
    """States of each node's executions in the run, in order."""
    context = store.get_context_by_type_and_name("pipeline_run", f"{name}.{RUN}")
    states = {}
    if context is None:  # no execution yet
        return states
    for execution in sorted(store.get_executions_by_context(context.id), key=lambda e: e.id):
        (node,) = (c for c in store.get_contexts_by_execution(execution.id) if c.type == "node")
        assert node.name.startswith(f"{name}.")
        state = metadata_store_pb2.Execution.State.Name(execution.last_known_state)
        states.setdefault(node.name.partition(".")[2], []).append(state)
    return states


def test_both_pipelines_succeed_and_killed_tasks_are_retried(runs):
    folder, airflow, store = runs
    for name, killed in (("one", "PretrainExampleGen"), ("two", "Trainer")):
        assert set(airflow.states(name, RUN).values()) == {"success"}
        tried = {task: len(airflow.attempts(folder, name, task)) for task in airflow.states(name, RUN)}
        assert tried == {task: 2 if task == killed else 1 for task in tried}
        states = executions(store, name)
        assert states.pop(killed) == ["FAILED", "COMPLETE"]
        assert len(states) == 11 and set(map(tuple, states.values())) == {("COMPLETE",)}


@pytest.mark.parametrize("name", ["one", "two"])
def test_shards_weights_and_metrics_are_those_of_a_local_run(runs, local, name):
    folder, _, _ = runs
    for node, key, part in (("PretrainExampleGen", "examples", "Split-*/*"), ("Trainer", "model", "**/variables/*")):
        mine, theirs = newest(folder / name, node, key, part), newest(local, node, key, part)
        assert mine == theirs and len(theirs) >= 2
    mine, theirs = figures(folder / name), figures(local)
    assert set(mine) == set(theirs) > {".mlm_perplexity", ".mlm_accuracy", ".nsp_accuracy"}
    # The sizes of the Evaluator's batches depend on time, and so does the order of summation.
    numbers = {key for key, value in theirs.items() if isinstance(value, float)}
    assert all(mine[key] == pytest.approx(theirs[key], rel=1e-6) for key in numbers)
    assert all(mine[key] == theirs[key] for key in set(theirs) - numbers)


def test_a_cleared_task_runs_again(runs):
    folder, airflow, store = runs
    airflow.clear("one", RUN, "StatisticsGen")
    airflow.wait("one")
    assert len(airflow.attempts(folder, "one", "StatisticsGen")) == 2
    assert executions(store, "one")["StatisticsGen"] == ["CANCELED", "COMPLETE"]
    context = store.get_context_by_type_and_name("node", "one.StatisticsGen")
    made = [a for a in store.get_artifacts_by_context(context.id) if a.type == "ExampleStatistics"]
    states = [metadata_store_pb2.Artifact.State.Name(artifact.state) for artifact in made]
    assert sorted(states) == ["LIVE", "MARKED_FOR_DELETION"]
    assert len(list((folder / "one" / "artifacts" / "StatisticsGen" / "statistics").glob("*/Split-*/*"))) == 2 * 2


def test_a_fine_tuning_equals_a_local_run(runs, local, tmp_path):
    folder, airflow, _ = runs
    (init,) = (local / "serving").glob("[0-9]*")
    settings = {
        "training.num_train_epochs": 2,
        "task.max_seq_length": 32,
        "gate.min_score": 0.3,
        "gate.allow_chance": "true",
    }
    words = ["--data", write_task("sst-2", tmp_path / "data"), "--init", init]
    words += set_words(settings)
    subprocess.run([BERT_TFX, "finetune", "sst-2", *words, "--run-dir", tmp_path / "local"], check=True)
    environ = airflow.environ
    compiled = [BERT_TFX, "compile", "airflow", "sst-2", "--name", "tuned", *words, "--run-dir", folder / "tuned"]
    metadata = ["--metadata", environ["BERT_TFX_METADATA_URI"]]
    subprocess.run([*compiled, "--output", environ["AIRFLOW__CORE__DAGS_FOLDER"], *metadata], env=environ, check=True)
    airflow.trigger("tuned", RUN)
    airflow.wait("tuned")
    assert set(airflow.states("tuned", RUN).values()) == {"success"}
    for node, key, part in (("TaskExampleGen", "examples", "Split-*/*"), ("Trainer", "model", "**/variables/*")):
        mine, theirs = newest(folder / "tuned", node, key, part), newest(tmp_path / "local", node, key, part)
        assert mine == theirs and len(theirs) >= 2
    mine, theirs = (summary_of(run) for run in (folder / "tuned", tmp_path / "local"))
    assert mine["scores"] == theirs["scores"]
    assert mine["pushed_version"] and theirs["pushed_version"]


def test_bad_input_fails_at_once(runs):
    folder, airflow, _ = runs
    airflow.trigger("two", "bad-input", {"corpus": ["/not/there.txt"]})
    airflow.wait("two", run="bad-input")
    assert airflow.states("two", "bad-input")["compile"] == "failed"
    logs = folder / "logs" / "dag_id=two" / "run_id=bad-input" / "task_id=compile"
    (log,) = logs.glob("attempt=*.log")
    assert "bert-tfx: /not/there.txt: no such file" in log.read_text()
    with pytest.raises(urllib.error.HTTPError, match=r"here\.txt"):
        airflow.trigger("two", "not-absolute", {"corpus": ["here.txt"]})


def test_the_password_is_in_no_file(runs):
    folder, airflow, _ = runs
    password = airflow.environ["BERT_TFX_METADATA_PASSWORD"].encode()
    kept = folder / "mariadb"  # the database itself has it, and the file that sets it at its start
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and kept not in path.parents and password in path.read_bytes():
                found.append(path)
    assert not found
    assert password in (kept / "start.sql").read_bytes() and (kept / "start.sql").stat().st_mode & 0o077 == 0
    assert Path(airflow.environ["AIRFLOW__CORE__DAGS_FOLDER"]).joinpath("one.json").exists()
