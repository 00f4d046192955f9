"""The DAG in Airflow's own Python, without TFX: tasks, parameters, effect of exit codes."""

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest

from pipeline.commands.compile.airflow import LOADER, LOADER_NAME
from pipeline.runners.airflow_plan import AirflowPlan, AirflowTaskPolicy

ROOT = Path(__file__).parents[4]
PYTHON = ROOT / ".venv-airflow" / "bin" / "python"
pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-airflow (scripts/setup_airflow.sh)"),
]
NODES = {"CorpusGen": [], "ImportSchemaGen": [], "VocabGen": ["CorpusGen"], "Trainer": ["VocabGen", "CorpusGen"]}
PRETRAIN = AirflowPlan(
    name="pre",
    recipe="tiny_cpu",
    command=["/bert-tfx"],
    run_dir="/runs/pre",
    metadata="",
    nodes=NODES,
    parameters={"corpus": ["/text"], "vocab": None, "init": None, "cased": None, "settings": []},
    beam_args=[],
    schedule="@daily",
    tasks=AirflowTaskPolicy(),
)
FINETUNE = dataclasses.replace(
    PRETRAIN,
    name="fine",
    nodes={"TaskExampleGen": []},
    parameters={"data": "/d", "train": [], "held_out": [], "test": [], "init": "/i", "cased": None, "settings": []},
    schedule=None,
)
# Prints, as JSON, Airflow's view of the plans, of commands with each exit code, and of wrong parameters.
SCRIPT = """
import contextlib, copy, json, os, subprocess, sys, time
from airflow.models import DagBag
from pipeline.runners import airflow as airflow_runner

bag = DagBag(sys.argv[1], include_examples=False)
told = {"errors": bag.import_errors, "heavy": sorted({"tensorflow", "tfx", "typer"} & set(sys.modules)), "dags": {}}
for dag in bag.dags.values():
    told["dags"][dag.dag_id] = {
        "tasks": {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks},
        "hours": {task.task_id: task.execution_timeout.total_seconds() / 3600 for task in dag.tasks},
        "retries": sorted({(task.retries, task.retry_exponential_backoff) for task in dag.tasks}),
        "runs": [dag.max_active_runs, dag.catchup, dag.schedule_interval],
    }

def refused(**conf):
    params = copy.deepcopy(bag.dags["pre"].params)
    try:
        params.update(conf)
        params.validate()
        return False
    except Exception:
        return True

told["refused"] = {
    "defaults": refused(),
    "good": refused(corpus=["/a", "gs://b/c"], settings=["a.b=c"], vocab="/v", init="latest"),
    "model": refused(init="bert"),
    "relative": refused(corpus=["a"]),
    "text": refused(corpus="/a"),
    "setting": refused(settings=["a.b"]),
}

told["ends"] = {}
for code in (0, 1, 2, 3, 4, "kill"):
    says = "kill -9 $$" if code == "kill" else f"echo first; echo the reason >&2; exit {code}"
    pid = os.fork()  # a task is a process of its own, and dies with its parent
    if pid == 0:
        operator = airflow_runner.CommandOperator(task_id="t", command=lambda context: ["sh", "-c", says])
        try:
            operator.execute({})
            end = ["", ""]
        except Exception as error:
            end = [type(error).__name__, str(error)]
        with open(f"{sys.argv[1]}/end", "w") as file:
            json.dump(end, file)
        os._exit(0)
    os.waitpid(pid, 0)
    told["ends"][str(code)] = json.load(open(f"{sys.argv[1]}/end"))

# A task that is killed takes its command with it, and so does what supervises it.
def outlives(kill_task):
    pids = f"{sys.argv[1]}/pids-{kill_task}"
    supervisor = os.fork()
    if supervisor == 0:
        if os.fork() == 0:
            write = f"echo $$ $PPID > {pids}.new; mv {pids}.new {pids}; exec sleep 600"
            airflow_runner.CommandOperator(task_id="t", command=lambda context: ["sh", "-c", write]).execute({})
        time.sleep(600)
    while not os.path.exists(pids):
        time.sleep(0.05)
    command, task = map(int, open(pids).read().split())
    os.kill(task if kill_task else supervisor, 9)
    deadline = time.monotonic() + 120
    while os.path.exists(f"/proc/{command}") and time.monotonic() < deadline:
        time.sleep(0.05)
    outlived = os.path.exists(f"/proc/{command}")
    for pid in (command, supervisor):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    os.waitpid(supervisor, 0)
    return outlived

told["outlives"] = {"its task": outlives(True), "its supervisor": outlives(False)}

# One that is asked to stop waits for its command.
operator = airflow_runner.CommandOperator(task_id="t", command=list)
stops = "trap 'sleep 0.5; echo done > stopped; exit 4' TERM; touch up; while :; do sleep 0.1; done"
process = subprocess.Popen(["sh", "-c", stops], start_new_session=True, cwd=sys.argv[1])
while not os.path.exists(f"{sys.argv[1]}/up"):
    time.sleep(0.05)
operator._hook.sub_process = process
operator.on_kill()
told["stopped"] = [os.path.exists(f"{sys.argv[1]}/stopped"), process.returncode]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dags")
    PRETRAIN.write(folder / "pre.json")
    FINETUNE.write(folder / "fine.json")
    (folder / LOADER_NAME).write_text(LOADER)
    home = str(tmp_path_factory.mktemp("airflow"))
    environ = {**os.environ, "AIRFLOW_HOME": home, "PYTHONPATH": str(ROOT)}
    words = [PYTHON, "-W", "ignore", "-c", SCRIPT, folder]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_plans_are_dags_and_need_nothing_heavy(told):
    assert told["errors"] == {} and told["heavy"] == []
    assert set(told["dags"]) == {"pre", "fine"}


def test_tasks_follow_each_other_as_the_nodes_do(told):
    assert told["dags"]["pre"]["tasks"] == {
        "compile": [],
        "CorpusGen": ["compile"],
        "ImportSchemaGen": ["compile"],
        "VocabGen": ["CorpusGen"],
        "Trainer": ["CorpusGen", "VocabGen"],
        "finish": ["ImportSchemaGen", "Trainer"],
    }
    assert told["dags"]["fine"]["tasks"]["finish"] == ["TaskExampleGen"]


def test_retries_timeouts_and_concurrency(told):
    pre = told["dags"]["pre"]
    assert pre["hours"] == {**dict.fromkeys(pre["tasks"], 6), "Trainer": 168}
    assert pre["retries"] == [[3, True]]
    assert pre["runs"] == [1, False, "@daily"] and told["dags"]["fine"]["runs"] == [1, False, None]


def test_run_parameters_are_checked_by_airflow(told):
    assert told["refused"] == {
        "defaults": False,
        "good": False,
        "model": True,
        "relative": True,
        "text": True,
        "setting": True,
    }


def test_exit_codes_determine_task_states(told):
    assert told["ends"] == {
        "0": ["", ""],
        "1": ["AirflowException", "the reason (exit code 1)"],
        "2": ["AirflowFailException", "the reason"],
        "3": ["AirflowSkipException", "the reason"],
        "4": ["AirflowException", "the reason (exit code 4)"],
        "kill": ["AirflowException", "the command was killed by SIGKILL"],
    }


def test_a_killed_task_leaves_no_command_behind(told):
    assert told["outlives"] == {"its task": False, "its supervisor": False}


def test_a_task_that_is_stopped_waits_for_its_command(told):
    assert told["stopped"] == [True, 4]
