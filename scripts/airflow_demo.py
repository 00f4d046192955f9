"""The demo pipeline as a DAG of Airflow, from nothing: `make airflow-demo`.

Usage: scripts/airflow.sh [--run-dir DIR] [--web] [OPTION OF `bert-tfx compile airflow`...]
Prints a line as each task ends. Exit codes are those of `bert-tfx pretrain`.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from scripts.airflow_api import USER, AirflowApi
from scripts.airflow_stack import ROOT, airflow_stack

BERT_TFX = ROOT / ".venv" / "bin" / "bert-tfx"
WEB_PORT = 8080
SECONDS_BETWEEN_LOOKS = 1.0
ENDED = ("success", "failed", "skipped", "upstream_failed")
SHOWN = ("success", "failed", "skipped", "up_for_retry")
OK, FAILED, NOT_BLESSED = 0, 1, 3


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/airflow"))
    parser.add_argument("--web", action="store_true", help=f"keep Airflow's pages, on port {WEB_PORT}, until Ctrl-C")
    arguments, rest = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    run_dir = arguments.run_dir.resolve()
    folder, dags = run_dir / "airflow", run_dir / "dags"
    with airflow_stack(folder, dags, WEB_PORT if arguments.web else None) as environ:
        compiled = [BERT_TFX, "compile", "airflow", *rest, "--run-dir", run_dir, "--output", dags]
        code = subprocess.run([*compiled, "--metadata", environ["BERT_TFX_METADATA_URI"]], env=environ).returncode
        if code:
            return code
        [plan] = [json.loads(path.read_text()) for path in dags.glob("*.json")]
        pages = f"{environ['AIRFLOW__API__BASE_URL']}: user {USER}, password in {folder / 'passwords.json'}"
        if arguments.web:
            print(pages, flush=True)
        code = run(plan["name"], environ)
        if arguments.web:
            print("until Ctrl-C:", pages, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    return code


def run(dag: str, environ: dict[str, str]) -> int:
    """Trigger a run and wait for its end; print a line as each task ends; return the run's exit code."""
    run_id, airflow = time.strftime("demo-%Y%m%dT%H%M%S"), AirflowApi(environ)
    airflow.trigger(dag, run_id)
    begun = time.monotonic()
    last: dict[str, str | None] = {}
    while not last or not set(last.values()) <= set(ENDED):
        time.sleep(SECONDS_BETWEEN_LOOKS)
        states = airflow.states(dag, run_id)
        for task, state in states.items():
            if state in SHOWN and state != last.get(task):
                print(f"{time.monotonic() - begun:6.0f} s  {task:20} {state}", flush=True)
        last = states
    logs = Path(environ["AIRFLOW__LOGGING__BASE_LOG_FOLDER"], f"dag_id={dag}", f"run_id={run_id}")
    failed = [task for task, state in last.items() if state == "failed"]
    for task in failed:
        print(f"bert-tfx: {task} failed: see {logs / f'task_id={task}'}", file=sys.stderr)
    return FAILED if failed else NOT_BLESSED if last["finish"] == "skipped" else OK


if __name__ == "__main__":
    os.chdir(ROOT)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bert-tfx: stopped")
