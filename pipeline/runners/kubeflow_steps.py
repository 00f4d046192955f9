"""Runs a compiled pipeline file without a cluster: each step's container command is a process of this machine.

What a backend of Kubeflow Pipelines would do with the file is done here: parameters and placeholders are filled in,
steps come after those they depend on, a condition skips what it guards, a step that failed is tried again. A step sees
the environment that the file gives it and nothing else of this one; images, resources and nodes are not looked at. What
the file mounts must be there: compile it with a `--mount-path` of this machine.
"""

from __future__ import annotations

import graphlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from bert_keras.errors import InputError, StageError
from pipeline.runners.kubeflow_file import CompiledPipeline

_EQUALS = re.compile(r"inputs\.parameter_values\['([^']+)'\] == '([^']*)'")
DONE, SKIPPED = "done", "skipped"


class StepRunner:
    """Runs the steps of one run.

    Args:
        pipeline: the compiled file.
        run_id: what a backend would call the run.
        folder: where logs and outputs of the steps go, by the step's name.
        image: the environment that the image gives every step; the default is a PATH with this `bert-tfx`.
        secrets: where the values of Secrets are taken from, by the name of the variable they become.
        tell: takes a line a step.

    Attributes:
        outcomes: of each step that was come to, in order: "done" or "skipped".
    """

    def __init__(
        self,
        pipeline: CompiledPipeline,
        run_id: str,
        folder: str,
        image: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] = os.environ,
        tell: Callable[[str], None] = print,
    ):
        self._pipeline, self._run_id, self._folder = pipeline, run_id, folder
        self._image = image or {"PATH": os.pathsep.join((os.path.dirname(sys.executable), os.defpath))}
        self._secrets, self._tell = secrets, tell
        self._executors = pipeline.spec["deploymentSpec"]["executors"]
        kubernetes = pipeline.platform.get("platforms", {}).get("kubernetes", {})
        self._platform = kubernetes.get("deploymentSpec", {}).get("executors", {})
        self.outcomes: dict[str, str] = {}

    def run(self, given: Mapping[str, Any]) -> None:
        """Runs every step.

        Args:
            given: values of parameters; the others have their defaults.

        Raises:
            InputError: the file has what an open-source backend cannot run, or needs a Secret that is not there.
            StageError: a step failed, as often as it may be tried; names it, its exit code and its log.
        """
        self._check()
        defaults = {n: about["defaultValue"] for n, about in self._pipeline.inputs.items() if "defaultValue" in about}
        self._dag(self._pipeline.spec["root"]["dag"]["tasks"], {**defaults, **given})

    def _check(self) -> None:
        """Refuses, before anything runs, what could not be run to its end."""
        for name, executor in self._executors.items():
            if kinds := executor.keys() - {"container"}:
                raise InputError(f"{self._pipeline.path}: {name} is no container but {', '.join(sorted(kinds))}")
            self._environment(name)
            for mount in self._platform.get(name, {}).get("pvcMount", []):
                try:
                    os.makedirs(mount["mountPath"], exist_ok=True)
                except OSError as error:
                    raise InputError(f"{mount['mountPath']}: {error.strerror}; --mount-path changes it") from error

    def _dag(self, tasks: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        outputs: dict[str, dict[str, str]] = {}
        upstream = {name: task.get("dependentTasks", []) for name, task in tasks.items()}
        for name in graphlib.TopologicalSorter(upstream).static_order():
            task = tasks[name]
            values = {
                key: self._input(source, inputs, outputs)
                for key, source in task.get("inputs", {}).get("parameters", {}).items()
            }
            if not _holds(task.get("triggerPolicy", {}).get("condition"), values):
                self.outcomes[name] = SKIPPED
                self._tell(f"{name:28} {SKIPPED}")
                continue
            component = self._pipeline.spec["components"][task["componentRef"]["name"]]
            if "dag" in component:
                self._dag(component["dag"]["tasks"], values)
                continue
            outputs[name] = self._step(name, component, values, task.get("retryPolicy", {}).get("maxRetryCount", 0))

    def _input(self, source: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Mapping[str, Mapping]) -> Any:
        if "componentInputParameter" in source:
            return inputs[source["componentInputParameter"]]
        if "taskOutputParameter" in source:
            of = source["taskOutputParameter"]
            return outputs[of["producerTask"]][of["outputParameterKey"]]
        constant = source["runtimeValue"]["constant"]
        # A backend fills in a constant that is a placeholder, and none that has one in it.
        return self._run_id if constant == "{{$.pipeline_job_uuid}}" else constant

    def _step(self, name: str, component: Mapping[str, Any], values: Mapping[str, Any], retries: int) -> dict[str, str]:
        """Runs a container's command until it succeeds; returns its outputs."""
        folder = os.path.join(self._folder, name)
        os.makedirs(folder, exist_ok=True)
        files = {key: os.path.join(folder, key) for key in component.get("outputDefinitions", {}).get("parameters", {})}
        label = component["executorLabel"]
        container: dict[str, list[str]] = self._executors[label]["container"]
        filled = {f"{{{{$.inputs.parameters['{key}']}}}}": _text(value) for key, value in values.items()}
        filled |= {f"{{{{$.outputs.parameters['{key}'].output_file}}}}": file for key, file in files.items()}
        # Backends fill in nothing in the name of the program.
        program, *words = [*container["command"], *container.get("args", [])]
        command = [program, *(_fill(word, filled) for word in words)]
        log = os.path.join(folder, "log")
        for attempt in range(retries + 1):
            with open(log, "ab") as output:
                code = self._process(command, folder, self._environment(label), output)
            if code == 0:
                break
            self._tell(f"{name:28} exit code {code}, attempt {attempt + 1} of {retries + 1}")
        else:
            raise StageError(f"step {name} failed with exit code {code}; its log is {log}")
        self.outcomes[name] = DONE
        self._tell(f"{name:28} {DONE}")
        made = {}
        for key, file in files.items():
            with open(file, encoding="utf-8") as said:
                made[key] = said.read()
        return made

    @staticmethod
    def _process(command: list[str], folder: str, environment: Mapping[str, str], output: Any) -> int:
        try:
            return subprocess.run(
                # The PATH that counts is the image's.
                ["/usr/bin/env", "--", *command],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ).returncode
        except OSError as error:
            raise InputError(f"{command[0]}: {error.strerror}") from error

    def _environment(self, label: str) -> dict[str, str]:
        """What the image, the container and its Secrets say."""
        found = dict(self._image)
        found |= {pair["name"]: pair["value"] for pair in self._executors[label]["container"].get("env", [])}
        for secret in self._platform.get(label, {}).get("secretAsEnv", []):
            for pair in secret["keyToEnv"]:
                variable = pair["envVar"]
                if variable not in self._secrets:
                    raise InputError(
                        f"{self._pipeline.path}: {label} takes {variable} from the Secret {secret['secretName']}; "
                        "set it in the environment"
                    )
                found[variable] = self._secrets[variable]
        return found


def _holds(condition: str | None, values: Mapping[str, Any]) -> bool:
    """Whether a step's condition lets it run."""
    if condition is None:
        return True
    match = _EQUALS.fullmatch(condition)
    if not match:
        raise InputError(f"{condition}: only NAME == 'VALUE' is understood here")
    return values[match[1]] == match[2]


def _text(value: Any) -> str:
    """A value as the launcher of a backend writes it into a command."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, separators=(",", ":"))


def _fill(word: str, filled: Mapping[str, str]) -> str:
    for placeholder, value in filled.items():
        word = word.replace(placeholder, value)
    return word
