"""A pipeline as plain data for Airflow: written by `bert-tfx compile airflow`, read by the DAG file.

Its reader has neither TFX nor TensorFlow. The plan holds no credentials: a password of ML Metadata comes from one of
Airflow's connections or from the environment of its workers.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.runners.step_words import compile_words, option_words
from pipeline.stages import RUN_ID, TRAINER, stage_of

DEFAULT_POOL = "default_pool"  # Airflow's own


@dataclasses.dataclass(frozen=True)
class RunParameter:
    """A parameter of the DAG's runs, for an `option` of `bert-tfx compile nodes`, with its JSON schema and its help."""

    default: Any
    option: str
    schema: Mapping[str, Any]
    description: str


@dataclasses.dataclass(frozen=True)
class AirflowTaskPolicy:
    """Retries, timeouts and pools of Airflow's tasks.

    Attributes:
        retries: retries of a task that failed, was killed or preempted; bad input is not retried.
        retry_delay_seconds: delay before the first retry; it doubles each time.
        max_retry_delay_seconds: longest delay.
        timeout_hours: time after which a task is stopped and retried.
        training_timeout_hours: the same for a training task.
        training_pool: Airflow's pool of training tasks, such as one with a slot for each GPU.
    """

    retries: int = 3
    retry_delay_seconds: float = 10.0
    max_retry_delay_seconds: float = 600.0
    timeout_hours: float = 6.0
    training_timeout_hours: float = 168.0
    training_pool: str = DEFAULT_POOL

    def timeout_seconds(self, node: str) -> float:
        """The timeout of a node's task, in seconds."""
        return 3600 * (self.training_timeout_hours if stage_of(node) == TRAINER else self.timeout_hours)

    def pool(self, node: str) -> str:
        """The pool of a node's task."""
        return self.training_pool if stage_of(node) == TRAINER else DEFAULT_POOL


@dataclasses.dataclass(frozen=True)
class AirflowPlan:
    """A pipeline for Airflow.

    `command` is `bert-tfx` of the pipeline's environment; `run_dir` is shared by all workers; `metadata` is as for
    `--metadata`. `nodes` have their upstream nodes, in a valid order of execution, `parameters` the names of fields of
    `pipeline.runs.request.RunRequest`. `schedule` is cron, or the URI of an asset whose updates start runs; None: only
    triggered runs. Without a `password_connection` the workers' environment has ML Metadata's password.
    """

    name: str
    recipe: str
    command: Sequence[str]
    run_dir: str
    metadata: str
    nodes: Mapping[str, Sequence[str]]
    parameters: Mapping[str, RunParameter]
    beam_args: Sequence[str]
    schedule: str | None
    tasks: AirflowTaskPolicy
    password_connection: str = ""

    @property
    def follows_asset(self) -> bool:
        """True if an asset starts the runs, such as the models that another plan pushes."""
        return "://" in (self.schedule or "")

    @property
    def pushed_models(self) -> str:
        """URI of the asset that a pushed model updates: the folder of the served versions."""
        return Path(self.run_dir, "serving").as_uri()

    def compile_words(self, parameters: Mapping[str, Any], run_id: str) -> list[str]:
        """The first task's command; ValueError for an unknown parameter."""
        if unknown := sorted(set(parameters) - set(self.parameters)):
            known = ", ".join(self.parameters)
            raise ValueError(f"{', '.join(unknown)}: no such run parameter; there are {known}")
        words = [*compile_words(self.recipe, self.name, self.metadata, self.nodes), *self._run_words(run_id)]
        for name, parameter in self.parameters.items():
            words += option_words(parameter.option, parameters.get(name))
        return [*self.command, *words, *(["--", *self.beam_args] if self.beam_args else [])]

    def node_words(self, node: str, run_id: str, again: bool) -> list[str]:
        """The command of a node; `again` re-runs a successful one."""
        return [*self.command, "run-node", node, *self._run_words(run_id), *["--again"] * again]

    def finish_words(self, run_id: str) -> list[str]:
        """The last task's command."""
        return [*self.command, "finish", *self._run_words(run_id)]

    def _run_words(self, run_id: str) -> list[str]:
        if not RUN_ID.fullmatch(run_id):
            run_id = f"run-{hashlib.sha256(run_id.encode()).hexdigest()[:16]}"
        return ["--run-dir", self.run_dir, "--run-id", run_id]

    def write(self, path: Path) -> None:
        """Write the plan for Airflow."""
        from bert_keras.files import atomic_write_anywhere  # Airflow's Python only reads

        atomic_write_anywhere(str(path), json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> "AirflowPlan | None":
        """Read a plan; None for any other file. ValueError if another version of this program wrote it."""
        text = path.read_text(errors="replace")
        if '"recipe":' not in text or '"nodes":' not in text:
            return None
        fields = json.loads(text)
        try:
            fields["tasks"] = AirflowTaskPolicy(**fields["tasks"])
            fields["parameters"] = {name: RunParameter(**value) for name, value in fields["parameters"].items()}
            return cls(**fields)
        except (TypeError, KeyError) as error:
            raise ValueError(f"{path}: of another version of bert-tfx; run `bert-tfx compile airflow` again") from error
