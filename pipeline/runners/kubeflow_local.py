"""Runs a compiled pipeline file without a cluster: each step's container command becomes a local process.

Like a backend of Kubeflow Pipelines it fills in parameters and placeholders, orders the steps by their dependencies,
evaluates conditions, and retries failed steps. A step sees only the environment that the file gives it; images,
resources and node selectors are ignored. The file's mounts must exist here: compile it with a local `--mount-path`.
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
from pipeline.runners.kubeflow_spec import EXECUTOR_INPUT, CompiledPipeline

_EQUALS = re.compile(r"inputs\.parameter_values\['([^']+)'\] == '([^']*)'")
DONE, SKIPPED = "done", "skipped"


class StepRunner:
    """Runs the steps of one pipeline run.

    Args:
        run_id: id of the run, as a backend would assign it.
        folder: parent folder of the steps' logs and outputs, one subfolder per step.
        image: environment variables of the image; default: a PATH with this `bert-tfx`.
        secrets: values of Secrets by environment variable.

    Attributes:
        outcomes: "done" or "skipped" for each step reached, in order.
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

    def run(self, values: Mapping[str, Any]) -> None:
        """Run every step.

        Args:
            values: parameter values; the others have their defaults.

        Raises:
            InputError: the file needs a missing Secret, or something that an open-source backend cannot run.
            StageError: a step failed after all its retries; names it, its exit code and its log.
        """
        self._check()
        defaults = {n: about["defaultValue"] for n, about in self._pipeline.inputs.items() if "defaultValue" in about}
        self._dag(self._pipeline.spec["root"]["dag"]["tasks"], {**defaults, **values})

    def _check(self) -> None:
        """Check all steps before the first one runs."""
        for name, executor in self._executors.items():
            if kinds := ", ".join(sorted(executor.keys() - {"container"})):
                raise InputError(f"{self._pipeline.path}: {name} is not a container (found: {kinds})")
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
            output = source["taskOutputParameter"]
            return outputs[output["producerTask"]][output["outputParameterKey"]]
        constant = source["runtimeValue"]["constant"]
        # Backends replace a constant that is a placeholder, but no placeholder inside a longer constant.
        return self._run_id if constant == "{{$.pipeline_job_uuid}}" else constant

    def _step(self, name: str, component: Mapping[str, Any], values: Mapping[str, Any], retries: int) -> dict[str, str]:
        """Run a container's command until it succeeds; return its outputs."""
        folder = os.path.join(self._folder, name)
        os.makedirs(folder, exist_ok=True)
        files = {key: os.path.join(folder, key) for key in component.get("outputDefinitions", {}).get("parameters", {})}
        label = component["executorLabel"]
        container: dict[str, list[str]] = self._executors[label]["container"]
        filled = {f"{{{{$.inputs.parameters['{key}']}}}}": _text(value) for key, value in values.items()}
        filled |= {f"{{{{$.outputs.parameters['{key}'].output_file}}}}": file for key, file in files.items()}
        artifacts = component.get("outputDefinitions", {}).get("artifacts", {})
        outputs = {key: {"artifacts": [{"uri": os.path.join(folder, key)}]} for key in artifacts}
        message = {"outputs": {"artifacts": outputs, "outputFile": os.path.join(folder, "output_metadata.json")}}
        filled[EXECUTOR_INPUT] = json.dumps(message)
        # Backends replace no placeholders in the program's name.
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
        values_written = {}
        for key, path in files.items():
            with open(path, encoding="utf-8") as file:
                values_written[key] = file.read()
        return values_written

    @staticmethod
    def _process(command: list[str], folder: str, environment: Mapping[str, str], output: Any) -> int:
        try:
            return subprocess.run(
                # The command is looked up on the image's PATH.
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
        """The environment from the image, the container and its Secrets."""
        variables = dict(self._image)
        variables |= {pair["name"]: pair["value"] for pair in self._executors[label]["container"].get("env", [])}
        for secret in self._platform.get(label, {}).get("secretAsEnv", []):
            for pair in secret["keyToEnv"]:
                variable = pair["envVar"]
                if variable not in self._secrets:
                    raise InputError(
                        f"{self._pipeline.path}: {label} needs {variable} from the Secret {secret['secretName']}; "
                        "set it in the environment"
                    )
                variables[variable] = self._secrets[variable]
        return variables


def _holds(condition: str | None, values: Mapping[str, Any]) -> bool:
    """Evaluate a step's condition."""
    if condition is None:
        return True
    match = _EQUALS.fullmatch(condition)
    if not match:
        raise InputError(f"{condition}: unsupported condition; only NAME == 'VALUE' can be evaluated here")
    return values[match[1]] == match[2]


def _text(value: Any) -> str:
    """A value in the form in which a backend's launcher writes it into a command."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, separators=(",", ":"))


def _fill(word: str, filled: Mapping[str, str]) -> str:
    for placeholder, value in filled.items():
        word = word.replace(placeholder, value)
    return word
