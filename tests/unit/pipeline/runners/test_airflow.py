"""The DAG in Airflow's own Python, without TFX: tasks, parameters, effect of exit codes."""

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest

from pipeline.commands.compile.airflow import LOADER, LOADER_NAME, _parameter
from pipeline.runners.airflow_plan import AirflowPlan, AirflowTaskPolicy

ROOT = Path(__file__).parents[4]
PYTHON = ROOT / ".venv-airflow" / "bin" / "python"
pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-airflow (scripts/setup_beside.sh airflow)"),
]
NODES = {"CorpusGen": [], "ImportSchemaGen": [], "VocabGen": ["CorpusGen"], "Trainer": ["VocabGen", "CorpusGen"]}
PRETRAIN = AirflowPlan(
    name="pre",
    recipe="tiny_cpu",
    command=["/bert-tfx"],
    run_dir="/runs/pre",
    metadata="",
    nodes=NODES,
    parameters={
        name: _parameter(name, value)
        for name, value in {"corpus": ["/text"], "vocab": None, "init": None, "cased": None, "settings": []}.items()
    },
    beam_args=[],
    schedule="@daily",
    tasks=AirflowTaskPolicy(training_pool="gpus"),
)
FINETUNE = dataclasses.replace(
    PRETRAIN,
    name="fine",
    nodes={"TaskExampleGen": []},
    parameters={name: _parameter(name, value) for name, value in {"data": "/d", "train": [], "init": "/i"}.items()},
    schedule=PRETRAIN.pushed_models,
)
# Prints, as JSON, Airflow's view of the plans, of commands with each exit code, and of wrong parameters.
SCRIPT = """
import contextlib, copy, json, os, subprocess, sys, time, types
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import BaseHook
from pipeline.runners import airflow as airflow_runner

bag = DagBag(sys.argv[1])
told = {"errors": bag.import_errors, "dags": {}}
told["heavy"] = sorted({"tensorflow", "tfx", "typer"} & set(sys.modules))
for dag in bag.dags.values():
    followed = getattr(dag.timetable, "asset_condition", None)
    told["dags"][dag.dag_id] = {
        "tasks": {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks},
        "groups": {task.task_id: task.task_group.group_id for task in dag.tasks},
        "hours": {task.task_id: task.execution_timeout.total_seconds() / 3600 for task in dag.tasks},
        "pools": {task.task_id: task.pool for task in dag.tasks},
        "retries": sorted({(task.retries, float(task.retry_exponential_backoff)) for task in dag.tasks}),
        "runs": [dag.max_active_runs, dag.catchup, dag.schedule if isinstance(dag.schedule, str) else None],
        "follows": [asset.uri for asset in getattr(followed, "objects", ())],
        "updates": {task.task_id: [asset.uri for asset in task.outlets] for task in dag.tasks if task.outlets},
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

# (attempt, attempts that Airflow allows at most) of a task with three retries: `run-node --again` or not
told["again"] = {}
for attempt, max_tries in ((1, 3), (2, 3), (2, 4), (3, 4), (4, 6), (4, 7)):
    instance = types.SimpleNamespace(try_number=attempt, max_tries=max_tries, task=bag.dags["pre"].get_task("Trainer"))
    words = instance.task._command({"run_id": "r", "ti": instance})
    told["again"][f"{attempt} of {max_tries}"] = words[-1] == "--again"

def end_of(operator):  # a task is a process of its own, and dies with its parent
    pid = os.fork()
    if pid == 0:
        try:
            operator.execute({})
            end = ["", ""]
        except Exception as error:
            end = [type(error).__name__, str(error)]
        with open(f"{sys.argv[1]}/end", "w") as file:
            json.dump(end, file)
        os._exit(0)
    os.waitpid(pid, 0)
    return json.load(open(f"{sys.argv[1]}/end"))

def says(script, operator=airflow_runner.CommandOperator, **options):
    return operator(task_id="t", command=lambda context: ["sh", "-c", script, "sh"], **options)

told["ends"] = {}
for code in (0, 1, 2, 3, 4, "kill"):
    script = "kill -9 $$" if code == "kill" else f"echo first; echo the reason >&2; exit {code}"
    told["ends"][str(code)] = end_of(says(script))

# `finish --outcome FILE`
finish, outcomes = airflow_runner.FinishOperator, ("pushed", "refused", "no new text")
told["outcomes"] = {said: end_of(says(f"printf '{said}' > $2", finish)) for said in outcomes}
os.environ["AIRFLOW_CONN_MLMD"] = "mysql://mlmd:planted@db/mlmd"
told["password"] = end_of(says("printf $BERT_TFX_METADATA_PASSWORD > $2", finish, password_connection="mlmd"))[1]

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
    (folder / "variables.json").write_text('{"a": 1}')
    (folder / LOADER_NAME).write_text(LOADER)
    home = str(tmp_path_factory.mktemp("airflow"))
    environ = {**os.environ, "AIRFLOW_HOME": home, "PYTHONPATH": str(ROOT), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
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


def test_nodes_are_grouped_and_keep_their_names(told):
    groups = {"CorpusGen": "examples", "ImportSchemaGen": "examples", "VocabGen": "examples", "Trainer": "training"}
    assert told["dags"]["pre"]["groups"] == {**groups, "compile": None, "finish": None}


def test_a_pushed_model_starts_another_dag(told):
    assert told["dags"]["pre"]["updates"] == {"finish": ["file:///runs/pre/serving"]}
    assert told["dags"]["fine"]["follows"] == ["file:///runs/pre/serving"] and not told["dags"]["pre"]["follows"]


def test_the_last_task_is_skipped_unless_a_model_was_pushed(told):
    assert told["outcomes"] == {
        "pushed": ["", ""],
        "refused": ["AirflowSkipException", "nothing was pushed: refused"],
        "no new text": ["AirflowSkipException", "nothing was pushed: no new text"],
    }


def test_the_password_comes_from_a_connection(told):
    assert told["password"] == "nothing was pushed: planted"


def test_a_cleared_task_and_its_retries_run_again_and_other_retries_do_not(told):
    """Clearing attempt n sets `max_tries` to n and the retries (`clear_task_instances` of Airflow 3.3)."""
    assert [attempt for attempt, again in told["again"].items() if again] == ["2 of 4", "3 of 4", "4 of 6"]


def test_retries_timeouts_and_concurrency(told):
    pre = told["dags"]["pre"]
    assert pre["hours"] == {**dict.fromkeys(pre["tasks"], 6), "Trainer": 168}
    assert pre["retries"] == [[3, 2]]
    assert pre["pools"] == {**dict.fromkeys(pre["tasks"], "default_pool"), "Trainer": "gpus"}
    assert pre["runs"] == [1, False, "@daily"] and told["dags"]["fine"]["runs"][:2] == [1, False]


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
        "3": ["AirflowException", "the reason (exit code 3)"],
        "4": ["AirflowException", "the reason (exit code 4)"],
        "kill": ["AirflowException", "the command was killed by SIGKILL"],
    }


def test_a_killed_task_leaves_no_command_behind(told):
    assert told["outlives"] == {"its task": False, "its supervisor": False}


def test_a_task_that_is_stopped_waits_for_its_command(told):
    assert told["stopped"] == [True, 4]
