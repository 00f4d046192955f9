"""What Airflow must know of a pipeline, as plain data: written by `bert-tfx compile airflow`, read by the DAG file.

It is read where there is neither TFX nor TensorFlow. It holds no credentials: where ML Metadata needs a password, the
environment of Airflow's workers has it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TRAINS = ("Trainer", "Tuner")
COMPILE, FINISH = "compile", "finish"
# A bad file name for some of our file systems; Airflow's own run ids are all right.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,199}")
_Schemas = dict[str, tuple[str, dict[str, Any], str]]
_PATHS = {"type": "array", "items": {"type": "string", "pattern": "^(/|[a-z0-9]+://)"}}
_PATH = {"type": ["null", "string"], "pattern": "^(/|[a-z0-9]+://)"}
# Run parameters: option of `compile nodes`, JSON schema, what it is.
_OF_ALL: _Schemas = {
    "settings": ("--set", {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}}, "KEY=VALUE")
}
_OF_PRETRAINING: _Schemas = {
    "corpus": ("--corpus", _PATHS, "text: absolute files, folders or globs; none: docstrings of installed libraries"),
    "vocab": ("--vocab", _PATH, "a vocabulary to use; none: it is learned"),
    **_OF_ALL,
}
_OF_FINE_TUNING: _Schemas = {
    "data": ("--data", _PATH, "the task's official folder"),
    "train": ("--train", _PATHS, "training rows, in place of data"),
    "held_out": ("--eval", _PATHS, "rows to judge on"),
    "test": ("--test", _PATHS, "rows to answer"),
    "init": ("--init", {"type": "string", "pattern": "^/"}, "the model to begin with"),
    "cased": ("--cased", {"type": ["null", "boolean"]}, "whether the vocabulary of init keeps case"),
    **_OF_ALL,
}


def parameter_schemas(pretrains: bool) -> _Schemas:
    """Of each run parameter its option of `bert-tfx compile nodes`, its JSON schema, and what it is."""
    return _OF_PRETRAINING if pretrains else _OF_FINE_TUNING


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """How Airflow treats a task.

    Attributes:
        retries: how often one that failed, was killed or preempted is tried again; bad input is not.
        retry_delay_seconds: the wait before the first of them; it doubles each time.
        max_retry_delay_seconds: the longest wait.
        timeout_hours: one that takes longer is stopped, and tried again.
        training_timeout_hours: the same of one that trains.
    """

    retries: int = 3
    retry_delay_seconds: float = 10.0
    max_retry_delay_seconds: float = 600.0
    timeout_hours: float = 6.0
    training_timeout_hours: float = 168.0

    def timeout_seconds(self, node: str) -> float:
        """Of a task."""
        return 3600 * (self.training_timeout_hours if node.startswith(TRAINS) else self.timeout_hours)


@dataclasses.dataclass(frozen=True)
class AirflowPlan:
    """A pipeline for Airflow.

    Attributes:
        name: the DAG's, and the pipeline's in ML Metadata.
        recipe: a recipe of pre-training, or a task.
        pretrains: which of them.
        command: `bert-tfx` of the pipeline's own environment.
        run_dir: where everything of a run lies; all workers see it.
        metadata: where ML Metadata lies, as `--metadata` takes it; empty: a file in the run directory.
        nodes: what each follows, in an order in which they may run.
        parameters: what a run is asked for if its trigger says nothing else; names as in `parameter_schemas`.
        beam_args: runner and workers of the stages of Beam; none: the worker's own machine.
        schedule: when Airflow starts a run by itself, as cron has it; None: never.
        tasks: how it treats tasks.
    """

    name: str
    recipe: str
    pretrains: bool
    command: Sequence[str]
    run_dir: str
    metadata: str
    nodes: Mapping[str, Sequence[str]]
    parameters: Mapping[str, Any]
    beam_args: Sequence[str]
    schedule: str | None
    tasks: TaskSettings

    def compile_words(self, parameters: Mapping[str, Any], run_id: str) -> list[str]:
        """The first task's command.

        Raises:
            ValueError: an unknown parameter.
        """
        schemas = parameter_schemas(self.pretrains)
        if unknown := sorted(set(parameters) - set(schemas)):
            known = ", ".join(schemas)
            raise ValueError(f"{', '.join(unknown)}: no such run parameter; there are {known}")
        words = ["compile", "nodes", self.recipe, *self._run_words(run_id), "--name", self.name]
        words += ["--metadata", self.metadata] if self.metadata else []
        words += ["--expect", ",".join(self.nodes)]
        for name, (option, _, _) in schemas.items():
            value = parameters.get(name)
            if isinstance(value, bool):
                words.append("--cased" if value else "--uncased")
            elif value is not None:
                words += [word for one in ([value] if isinstance(value, str) else value) for word in (option, one)]
        return [*self.command, "warm", *words, *(["--", *self.beam_args] if self.beam_args else [])]

    def node_words(self, node: str, run_id: str, again: bool) -> list[str]:
        """The command of a node; `again` does anew what is done."""
        return [*self.command, "warm", "run-node", node, *self._run_words(run_id), *["--again"] * again]

    def finish_words(self, run_id: str) -> list[str]:
        """The last task's command."""
        return [*self.command, "warm", "finish", *self._run_words(run_id)]

    def _run_words(self, run_id: str) -> list[str]:
        return ["--run-dir", self.run_dir, "--run-id", _safe(run_id)]

    def write(self, path: Path) -> None:
        """Writes the plan for Airflow."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> AirflowPlan:
        """A plan as it was written."""
        fields = json.loads(path.read_text())
        return cls(**{**fields, "tasks": TaskSettings(**fields["tasks"])})


def _safe(run_id: str) -> str:
    """Airflow's run id where it can name a file, else a hash of it."""
    return run_id if _RUN_ID.fullmatch(run_id) else f"run-{hashlib.sha256(run_id.encode()).hexdigest()[:16]}"
