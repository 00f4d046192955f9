"""Examples made by other Beam engines, and by workers without TFX, equal those of this process byte by byte."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.pipeline.command_line import start
from tests.support.pipeline.example_shards import SMALL_SHARDS, check_a_bad_record_is_named, digests, make

ROOT = Path(__file__).parents[2]
UV = ROOT / ".uv" / "bin" / "uv"
NOT_ON_WORKERS = ("tfx", "ml_metadata", "tensorflow_data_validation", "tensorflow_model_analysis", "tensorflow")
# Beam's embedded job service: the pipeline and its package go through its API, as to another process.
EMBEDDED = ("--runner=PortableRunner", "--job_endpoint=embed")


@pytest.fixture(scope="module")
def worker_python(tmp_path_factory):
    """The Python of an environment with the package that Beam ships, and only its requirements."""
    if not UV.exists():
        pytest.skip(f"{UV} is not there: scripts/setup.sh makes it")
    folder = tmp_path_factory.mktemp("worker")
    # Built like Beam's stager does.
    build = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", folder, "sdist", "--dist-dir", folder]
    subprocess.run([*map(str, build)], cwd=ROOT, check=True, capture_output=True)
    (package,) = folder.glob("*.tar.gz")
    lock = ROOT / "requirements" / f"py3{sys.version_info.minor}.txt"
    made = {**os.environ, "VIRTUAL_ENV": str(folder / "venv"), "UV_PYTHON_DOWNLOADS": "never"}
    for command in (
        ["venv", "--quiet", "--no-project", "--python", sys.executable, folder / "venv"],
        # The versions of the lock.
        ["pip", "install", "--quiet", "--constraint", lock, package],
    ):
        subprocess.run([UV, *map(str, command)], cwd=folder, env=made, check=True)
    return folder / "venv" / "bin" / "python"


def clean_environment():
    """This process's environment, without variables that lead a Python to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_workers_have_no_tfx(worker_python):
    code = (
        f"import importlib.util as u; print([n for n in {NOT_ON_WORKERS} if u.find_spec(n)], u.find_spec('pipeline'))"
    )
    done = subprocess.run(
        [worker_python, "-c", code], capture_output=True, text=True, check=True, env=clean_environment(), cwd="/"
    )
    assert done.stdout.startswith("[] ModuleSpec") and str(worker_python.parents[1]) in done.stdout
    assert all(importlib.util.find_spec(name) for name in NOT_ON_WORKERS)  # here they are installed


def test_the_package_makes_the_same_bytes_without_tfx(made, corpus, tmp_path, worker_python):
    output, figures = made
    command = [worker_python.with_name("bert-tfx"), "examples", "--corpus", corpus, "--output", tmp_path / "out"]
    done = subprocess.run(
        [*map(str, command), *SMALL_SHARDS], capture_output=True, text=True, env=clean_environment(), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert digests(tmp_path / "out") == digests(output)
    assert (tmp_path / "out/example_spec.json").read_bytes() == (output / "example_spec.json").read_bytes()
    assert json.loads(done.stdout.splitlines()[-1])["tokens"] == figures["tokens"]


def subprocess_workers(python, pids):
    """Arguments for worker processes of another Python, which record their process ids.

    The embedded job service starts one a stage, whatever --direct_num_workers says.
    """
    script = pids.with_suffix(".sh")
    script.write_text(
        f"#!/bin/sh\necho $$ >> {pids}\nunset PYTHONPATH\ncd /\n"
        f"exec {python} -m apache_beam.runners.worker.sdk_worker_main\n"
    )
    script.chmod(0o755)
    return (
        *EMBEDDED,
        "--environment_type=beam:env:harness_subprocess_python:v1",
        f"--environment_config={script}",
    )


def test_the_portable_runner_with_workers_that_have_no_tfx(made, corpus, tmp_path, worker_python):
    """Functions pickled here, with TFX installed, are unpickled and run there."""
    output, _ = made
    pids = tmp_path / "pids"
    make(corpus, tmp_path / "out", *SMALL_SHARDS, "--", *subprocess_workers(worker_python, pids))
    assert digests(tmp_path / "out") == digests(output)
    assert (tmp_path / "out/example_spec.json").read_bytes() == (output / "example_spec.json").read_bytes()
    assert len(set(pids.read_text().split()) - {str(os.getpid())}) == 3  # documents, vocabulary, examples


def test_the_portable_runner_with_a_worker_in_this_process(made, corpus, tmp_path):
    output, _ = made
    make(corpus, tmp_path / "out", *SMALL_SHARDS, "--", *EMBEDDED, "--environment_type=LOOPBACK")
    assert digests(tmp_path / "out") == digests(output)


def test_a_bad_record_is_named_through_the_job_service(tmp_path):
    check_a_bad_record_is_named(tmp_path, *EMBEDDED, "--environment_type=LOOPBACK")


# Flink and Spark, each on three machines. ci/flink.sh and ci/spark.sh start them, and then these tests.

needs_cluster = pytest.mark.skipif(
    "ENGINE_ARGS" not in os.environ, reason="ENGINE_ARGS is unset: ci/flink.sh and ci/spark.sh set it"
)
SECONDS_INTO_THE_STAGE = 1
LAST_FILES = {"documents": "corpus.json", "vocabulary": "vocab_spec.json", "examples": "example_spec.json"}
# Each of them is killed in every stage: a name of $ENGINE_RUN/NAME.pid.
VICTIMS = ["worker-pool-2", "engine-2", "job-server"]
STAGES = ["documents", "vocabulary", "examples"]


def engine_args():
    return os.environ["ENGINE_ARGS"].split()


def kill(victim):
    """Kill a process and its children at once, as a machine that fails does; it may have to come back first."""
    file = Path(os.environ["ENGINE_RUN"]) / f"{victim}.pid"
    while not psutil.pid_exists(int(file.read_text() or 0)):
        time.sleep(0.5)
    process = psutil.Process(int(file.read_text()))
    for one in [*process.children(recursive=True), process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def workers_connected(machines):
    """Number of workers that these machines have had, by the logs of task managers or Spark executors."""
    run = Path(os.environ["ENGINE_RUN"])
    logs = [log for one in machines for log in (run / f"engine-{one}.log", *run.glob(f"work-{one}/*/*/stderr"))]
    return sum(log.read_text(errors="replace").count("Control client connected") for log in logs)


@needs_cluster
def test_a_cluster_makes_the_same_bytes(made, corpus, tmp_path):
    output, figures = made
    assert make(corpus, tmp_path / "out", *SMALL_SHARDS, "--", *engine_args())["tokens"] == figures["tokens"]
    assert digests(tmp_path / "out") == digests(output)


@needs_cluster
def test_workers_in_the_command_itself(made, corpus, tmp_path):
    """LOOPBACK reaches the workers by the name localhost: the engine runs within the job server, on this machine."""
    output, _ = made
    make(corpus, tmp_path / "out", *SMALL_SHARDS, "--", *os.environ["LOOPBACK_ARGS"].split())
    assert digests(tmp_path / "out") == digests(output)


@needs_cluster
def test_a_bad_record_is_named_through_a_cluster(tmp_path):
    check_a_bad_record_is_named(tmp_path, *engine_args())


@needs_cluster
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_process_killed_in_each_stage(made, corpus, tmp_path, victim):
    """The engine starts the stage again, or the command fails, and does the stage again when it is given again."""
    output, _ = made
    killed, codes = [], []
    # A stage may leave machine 2 idle after a restart; a pool is killed only with a worker.
    machines = [2] if victim == "worker-pool-2" else [2, 3]
    while len(codes) < 8 and codes[-1:] != [0]:
        words = ("examples", "--corpus", corpus, "--output", tmp_path / "out", *SMALL_SHARDS, "--", *engine_args())
        command = start(*words)
        connected, lines = workers_connected(machines), []
        for line in command.stdout:
            lines.append(line)
            stage, sent, _ = line.removeprefix("bert-tfx: ").partition(": sent as job")
            if sent and stage not in killed:
                # Within the stage: a worker of its job is connected, and its last file is not there. For a worker that
                # dies before, with its pool, Beam waits without end (docs/scaling.md).
                while workers_connected(machines) == connected and command.poll() is None:
                    time.sleep(0.5)
                time.sleep(SECONDS_INTO_THE_STAGE)
                assert not list((tmp_path / "out/work.part").glob(f"*/{LAST_FILES[stage]}"))
                kill(victim)
                killed.append(stage)
            connected = workers_connected(machines) if sent else connected
        codes.append(command.wait())
    print(victim, killed, codes)
    assert killed == STAGES and codes[-1] == 0, lines[-20:]
    assert digests(tmp_path / "out") == digests(output)
