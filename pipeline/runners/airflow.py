"""Builds an Airflow DAG from a plan of `bert-tfx compile airflow`, for Airflow 3.

Airflow's Python loads this file without TFX and TensorFlow: each task is a command in the pipeline's environment.
"""

import datetime
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, Asset, BaseHook, BaseOperator, Param, TaskGroup
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from components.processes import UNTIL_PARENT_ENDS, end_with_parent
from pipeline.runners.airflow_plan import AirflowPlan
from pipeline.runners.step_words import COMPILE, FINISH, PASSWORD, PUSHED
from pipeline.runs.exit_codes import Exit
from pipeline.stages import group_of

# A node writes a checkpoint before it stops; Airflow kills a task 60 seconds after the request to stop.
SECONDS_TO_STOP = 50


class CommandOperator(BaseOperator):
    """A task that runs the words that `command` makes of its context; the exit code determines the task's state.

    The command receives the password of `password_connection` as ML Metadata's; without one, that of the environment.
    """

    ui_color = "#e8f0fe"

    def __init__(self, *, command: Callable[[Any], list[str]], password_connection: str = "", **kwargs: Any):
        super().__init__(**kwargs)
        self._command, self._password_connection, self._hook = command, password_connection, SubprocessHook()

    def execute(self, context: Any) -> None:
        """Run the command; its output is the task's log.

        AirflowFailException: bad input; a retry would not help. AirflowException: any other failure, which is retried.
        """
        self._run(self._command(context))

    def _run(self, words: list[str]) -> None:
        environ = dict(os.environ)
        if self._password_connection:
            environ[PASSWORD] = BaseHook.get_connection(self._password_connection).password or ""
        # Airflow abandons a task whose supervisor was killed, and starts another.
        end_with_parent(os.getppid())
        result = self._hook.run_command([*UNTIL_PARENT_ENDS, *words], env=environ)
        if result.exit_code < 0:
            raise AirflowException(f"the command was killed by {signal.Signals(-result.exit_code).name}")
        if result.exit_code == Exit.BAD_INPUT:
            raise AirflowFailException(result.output)
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


class FinishOperator(CommandOperator):
    """The last task: it succeeds if a model was pushed, and is skipped otherwise."""

    def execute(self, context: Any) -> None:
        """Run the command; AirflowSkipException if the gate refused the model, or there was no new text."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "outcome")
            self._run([*self._command(context), "--outcome", str(path)])
            outcome = path.read_text()
        if outcome != PUSHED:
            raise AirflowSkipException(f"nothing was pushed: {outcome}")


def dag_of(plan: AirflowPlan, **options: Any) -> DAG:
    """The DAG of a plan: `compile`, a task for each node, `finish`.

    `options` replace arguments of Airflow's `DAG`, such as `on_failure_callback` or `deadline`.
    """
    defaults: dict[str, Any] = {
        "description": f"bert-tfx: {plan.recipe}",
        "schedule": [Asset(plan.schedule)] if plan.follows_asset else plan.schedule,
        "start_date": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "catchup": False,
        "max_active_runs": 1,  # a run directory allows one run at a time
        "params": {
            name: Param(parameter.default, description=parameter.description, **parameter.schema)
            for name, parameter in plan.parameters.items()
        },
        "default_args": {
            "retries": plan.tasks.retries,
            "retry_delay": datetime.timedelta(seconds=plan.tasks.retry_delay_seconds),
            "retry_exponential_backoff": 2.0,
            "max_retry_delay": datetime.timedelta(seconds=plan.tasks.max_retry_delay_seconds),
        },
        "tags": ["bert-tfx"],
    }
    with DAG(plan.name, **{**defaults, **options}) as dag:
        first = _task(plan, COMPILE, lambda context: _compile_words(plan, context))
        groups = {group: TaskGroup(group, prefix_group_id=False) for group in dict.fromkeys(map(group_of, plan.nodes))}
        tasks = {}
        for node, upstreams in plan.nodes.items():
            tasks[node] = _task(plan, node, _node_command(plan, node), task_group=groups[group_of(node)])
            tasks[node].set_upstream([tasks[upstream] for upstream in upstreams] or first)
        words = lambda context: plan.finish_words(context["run_id"])  # noqa: E731
        last = _task(plan, FINISH, words, FinishOperator, outlets=[Asset(plan.pushed_models)])
        last.set_upstream([task for task in tasks.values() if not task.downstream_list])
    return dag


def dags_below(folder: Path, **options: Any) -> dict[str, DAG]:
    """The DAGs of all plans in a folder, by name of the DAG; `options` as for `dag_of`."""
    plans = map(AirflowPlan.read, sorted(folder.glob("*.json")))
    return {plan.name: dag_of(plan, **options) for plan in plans if plan}


def _task(
    plan: AirflowPlan,
    name: str,
    command: Callable[[Any], list[str]],
    operator: type[CommandOperator] = CommandOperator,
    **options: Any,
) -> CommandOperator:
    return operator(
        task_id=name,
        command=command,
        password_connection=plan.password_connection,
        execution_timeout=datetime.timedelta(seconds=plan.tasks.timeout_seconds(name)),
        pool=plan.tasks.pool(name),
        **options,
    )


def _compile_words(plan: AirflowPlan, context: Any) -> list[str]:
    try:
        return plan.compile_words(dict(context["params"]), context["run_id"])
    except ValueError as error:
        raise AirflowFailException(str(error)) from error


def _node_command(plan: AirflowPlan, node: str) -> Callable[[Any], list[str]]:
    def words(context: Any) -> list[str]:
        # Of a task that a user has cleared, this attempt and its retries repeat the node, without the cache. Tasks of
        # Airflow 3 cannot read the states of earlier attempts, but clearing sets `max_tries` to those so far plus
        # `retries` (`clear_task_instances`).
        task = context["ti"]
        attempts_before = task.max_tries - task.task.retries
        return plan.node_words(node, context["run_id"], again=0 < attempts_before < task.try_number)

    return words
