"""Examples made by other Beam engines, and by workers without TFX, equal those of this process byte by byte."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pipeline.command_line import bert_tfx
from tests.support.pipeline.example_shards import SMALL_SHARDS, digests, make

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
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "One sentence."}\n' * 5 + '{"txt": "Another."}\n')
    words = ("--", *EMBEDDED, "--environment_type=LOOPBACK")
    code, _, err = bert_tfx("examples", "--corpus", path, "--output", tmp_path / "out", *words)
    last = err.splitlines()[-1]
    assert code == 2 and "a.jsonl" in last and "6" in last and "text" in last, err[-2000:]


# Engines in Java: Beam's job server for them runs the stages in an embedded cluster.


def needs_job_server(variable):
    """Mark of a test that needs Java and the job server's jar, whose path is in an environment variable."""
    missing = [f"{variable} is unset"] * (not os.environ.get(variable)) + ["there is no java"] * (
        not shutil.which("java")
    )
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)}: no job server to run on")


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(
            ("--runner=FlinkRunner", "--flink_master=[local]", "--flink_job_server_jar={FLINK_JOB_SERVER_JAR}"),
            marks=needs_job_server("FLINK_JOB_SERVER_JAR"),
            id="flink",
        ),
        pytest.param(
            ("--runner=SparkRunner", "--spark_master_url=local[2]", "--spark_job_server_jar={SPARK_JOB_SERVER_JAR}"),
            marks=needs_job_server("SPARK_JOB_SERVER_JAR"),
            id="spark",
        ),
    ],
)
def test_a_job_server_makes_the_same_bytes(made, corpus, tmp_path, args):
    output, _ = made
    words = (arg.format(**os.environ) for arg in args)
    make(corpus, tmp_path / "out", *SMALL_SHARDS, "--", *words, "--environment_type=LOOPBACK", "--parallelism=2")
    assert digests(tmp_path / "out") == digests(output)
