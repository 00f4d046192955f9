"""The demo pipeline as a DAG of Airflow, from nothing: `make airflow-demo`.

Usage: scripts/airflow.sh [--run-dir DIR] [--web] [OPTION OF `bert-tfx compile airflow`...]
Prints a line as each task ends. Exit codes are those of `bert-tfx pretrain`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from airflow_stack import AIRFLOW, ROOT, airflow_stack, background

BERT_TFX = ROOT / ".venv" / "bin" / "bert-tfx"
WEB_PORT = "8080"
OK, FAILED, NOT_BLESSED = 0, 1, 3


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/airflow"))
    parser.add_argument("--web", action="store_true", help="Airflow's pages too; they stay until Ctrl-C")
    arguments, rest = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    run_dir = arguments.run_dir.resolve()
    folder, dags = run_dir / "airflow", run_dir / "dags"
    with airflow_stack(folder, dags) as environ:
        compiled = [BERT_TFX, "warm", "compile", "airflow", *rest, "--run-dir", run_dir, "--output", dags]
        code = subprocess.run([*compiled, "--metadata", environ["BERT_TFX_METADATA_URI"]], env=environ).returncode
        if code:
            return code
        [plan] = [json.loads(path.read_text()) for path in dags.glob("*.json")]
        if not arguments.web:
            return run(plan["name"], environ)
        with web_server(folder, environ):
            code = run(plan["name"], environ)
            print("until Ctrl-C: http://127.0.0.1:" + WEB_PORT, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    return code


def run(dag: str, environ: dict[str, str]) -> int:
    """Trigger a run and wait for its end; return its exit code."""
    run_id = time.strftime("demo-%Y%m%dT%H%M%S")
    airflow(environ, "dags", "reserialize")
    airflow(environ, "dags", "trigger", dag, "--run-id", run_id)
    watch = [AIRFLOW.with_name("python"), ROOT / "scripts" / "airflow_watch.py", dag, run_id]
    begun, last = time.monotonic(), {}
    with subprocess.Popen(watch, env=environ, stdout=subprocess.PIPE, text=True) as watching:
        for line in watching.stdout or []:
            task, state = line.split()
            last[task] = state
            print(f"{time.monotonic() - begun:6.0f} s  {task:20} {state}", flush=True)
    if watching.returncode:
        return FAILED
    logs = Path(environ["AIRFLOW__LOGGING__BASE_LOG_FOLDER"], f"dag_id={dag}", f"run_id={run_id}")
    failed = [task for task, state in last.items() if state == "failed"]
    for task in failed:
        print(f"bert-tfx: {task} failed: see {logs / f'task_id={task}'}", file=sys.stderr)
    if failed:
        return FAILED
    return NOT_BLESSED if last["finish"] == "skipped" else OK


def airflow(environ: dict[str, str], *words: str, answers: str = "") -> None:
    """Run an Airflow command; `answers` is its input without a terminal."""
    done = subprocess.run(
        [AIRFLOW, *words], env=environ, input=answers, start_new_session=True, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"bert-tfx: airflow {' '.join(words[:2])} failed:\n{done.stderr[-2000:]}")


def web_server(folder: Path, environ: dict[str, str]):
    """Airflow's pages on 127.0.0.1; the password of `admin` is in a file."""
    password, kept = secrets.token_urlsafe(12), folder / "web-password"
    kept.write_text(password)
    new = ["users", "create", "--username", "admin", "--role", "Admin", "--firstname", "A", "--lastname", "A"]
    # Not as an argument, which other users of this machine can read.
    airflow(environ, *new, "--email", "admin@localhost", answers=f"{password}\n" * 2)
    print(f"http://127.0.0.1:{WEB_PORT}: user admin, password in {kept}", flush=True)
    serve = [str(AIRFLOW), "webserver", "--hostname", "127.0.0.1", "--port", WEB_PORT, "--workers", "1"]
    return background(serve, environ, folder / "logs" / "webserver.log")


if __name__ == "__main__":
    os.chdir(ROOT)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bert-tfx: stopped")
