"""Print `TASK STATE` for the state changes of a run's tasks, until all have ended.

Usage: .venv-airflow/bin/python scripts/airflow_watch.py DAG RUN_ID
One process, because each `airflow` command takes seconds of a core to start.
"""

from __future__ import annotations

import sys
import time

from airflow.models import TaskInstance
from airflow.utils.session import create_session

ENDED = ("success", "failed", "skipped", "upstream_failed")
TOLD = ("success", "failed", "skipped", "up_for_retry")
SECONDS_BETWEEN_LOOKS = 1.0


def watch(dag: str, run_id: str) -> None:
    """Poll until all tasks have ended."""
    told: dict[str, str] = {}
    while True:
        with create_session() as session:
            asked = session.query(TaskInstance.task_id, TaskInstance.state).order_by(TaskInstance.end_date)
            states = dict(asked.filter_by(dag_id=dag, run_id=run_id).all())
        for task, state in states.items():
            if state in TOLD and state != told.get(task):
                print(task, state, flush=True)
        told = states
        if states and all(state in ENDED for state in states.values()):
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


if __name__ == "__main__":
    watch(*sys.argv[1:])
