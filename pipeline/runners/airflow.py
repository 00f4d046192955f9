"""Builds an Airflow DAG from a plan of `bert-tfx compile airflow`.

Airflow's Python loads this file without TFX and TensorFlow: each task is a command in the pipeline's environment.
"""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.hooks.subprocess import SubprocessHook
from airflow.models import DAG, BaseOperator, Param
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.utils.session import create_session

from components.processes import UNTIL_PARENT_ENDS, end_with_parent
from pipeline.runners.airflow_plan import COMPILE, FINISH, AirflowPlan, parameter_schemas
from pipeline.runs.exit_codes import Exit

# A node writes a checkpoint before it stops; Airflow kills a task 60 seconds after the request to stop.
SECONDS_TO_STOP = 50


class CommandOperator(BaseOperator):
    """A task that runs a command; the exit code determines the task's state.

    Args:
        command: maps the task's context to the command's words.
    """

    ui_color = "#e8f0fe"

    def __init__(self, *, command: Callable[[Any], list[str]], **kwargs: Any):
        super().__init__(**kwargs)
        self._command, self._hook = command, SubprocessHook()

    def execute(self, context: Any) -> None:
        """Run the command; its output is the task's log.

        Raises:
            AirflowFailException: bad input; a retry would not help.
            AirflowSkipException: the gate refused the model.
            AirflowException: any other failure; Airflow retries the task.
        """
        # Airflow abandons a task whose supervisor was killed, and starts another.
        end_with_parent(os.getppid())
        result = self._hook.run_command([*UNTIL_PARENT_ENDS, *self._command(context)])
        if result.exit_code < 0:
            raise AirflowException(f"the command was killed by {signal.Signals(-result.exit_code).name}")
        if result.exit_code == Exit.BAD_INPUT:
            raise AirflowFailException(result.output)
        if result.exit_code == Exit.NOT_BLESSED:
            raise AirflowSkipException(result.output)
        if result.exit_code != Exit.OK:
            raise AirflowException(f"{result.output} (exit code {result.exit_code})")

    def on_kill(self) -> None:
        """Terminate the command and wait for it: it may be writing a checkpoint."""
        process = self._hook.sub_process
        if process and process.poll() is None:
            self._hook.send_sigterm()
            try:
                process.wait(SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                self.log.warning("the command does not stop; Airflow kills it with this task")


def dag_of(plan: AirflowPlan) -> DAG:
    """The DAG of a plan: `compile`, a task for each node, `finish`."""
    with DAG(
        plan.name,
        description=f"bert-tfx: {plan.recipe}",
        schedule=plan.schedule,
        start_date=datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
        catchup=False,
        max_active_runs=1,  # a run directory allows one run at a time
        params={
            name: Param(plan.parameters.get(name), description=what, **schema)
            for name, (_, schema, what) in parameter_schemas(plan.parameters).items()
        },
        default_args={
            "retries": plan.tasks.retries,
            "retry_delay": datetime.timedelta(seconds=plan.tasks.retry_delay_seconds),
            "retry_exponential_backoff": True,
            "max_retry_delay": datetime.timedelta(seconds=plan.tasks.max_retry_delay_seconds),
        },
        tags=["bert-tfx"],
    ) as dag:
        first = _task(plan, COMPILE, lambda context: _compile_words(plan, context))
        tasks = {}
        for node, upstreams in plan.nodes.items():
            tasks[node] = _task(plan, node, _node_command(plan, node))
            tasks[node].set_upstream([tasks[upstream] for upstream in upstreams] or first)
        last = _task(plan, FINISH, lambda context: plan.finish_words(context["run_id"]))
        last.set_upstream([task for task in tasks.values() if not task.downstream_list])
    return dag


def dags_below(folder: Path) -> dict[str, DAG]:
    """The DAGs of all plans in a folder, by name of the DAG."""
    plans = [AirflowPlan.read(path) for path in sorted(folder.glob("*.json"))]
    return {plan.name: dag_of(plan) for plan in plans}


def _task(plan: AirflowPlan, name: str, command: Callable[[Any], list[str]]) -> CommandOperator:
    timeout = datetime.timedelta(seconds=plan.tasks.timeout_seconds(name))
    return CommandOperator(task_id=name, command=command, execution_timeout=timeout)


def _compile_words(plan: AirflowPlan, context: Any) -> list[str]:
    try:
        return plan.compile_words(dict(context["params"]), context["run_id"])
    except ValueError as error:
        raise AirflowFailException(str(error)) from error


def _node_command(plan: AirflowPlan, node: str) -> Callable[[Any], list[str]]:
    return lambda context: plan.node_words(node, context["run_id"], _was_cleared(context["ti"]))


def _was_cleared(task_instance: Any) -> bool:
    """Whether the previous attempt succeeded, so that a user has cleared the task to re-run it."""
    same = (getattr(TaskInstanceHistory, key) == getattr(task_instance, key) for key in ("dag_id", "task_id", "run_id"))
    with create_session() as session:
        before = session.query(TaskInstanceHistory.state).filter(
            *same, TaskInstanceHistory.try_number == task_instance.try_number - 1
        )
        return before.scalar() == "success"
