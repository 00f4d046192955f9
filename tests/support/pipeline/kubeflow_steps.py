"""Runs a compiled pipeline file as a backend of Kubeflow Pipelines does: each step's command becomes a local process.

It fills in parameters and placeholders, orders the steps by their dependencies, evaluates conditions, and retries
failed steps. A step sees only the environment that the file gives it; images and resources are ignored.
"""

import graphlib
import json
import os
import re
import subprocess
import sys

import yaml

_EQUALS = re.compile(r"inputs\.parameter_values\['([^']+)'\] == '([^']*)'")
DONE, SKIPPED = "done", "skipped"


class StepRunner:
    """Runs the steps of one pipeline run.

    Args:
        file: the compiled pipeline.
        run_id: id of the run, as a backend would assign it.
        folder: parent folder of the steps' logs and outputs, one subfolder per step.
        image: environment variables of the image; default: a PATH with this `bert-tfx`.
        secrets: values of Secrets by environment variable.

    Attributes:
        outcomes: "done" or "skipped" for each step reached, in order.
    """

    def __init__(self, file, run_id, folder, image=None, secrets=os.environ):
        self.spec, *platform = yaml.safe_load_all(file.read_text())
        self._run_id, self._folder, self._secrets = run_id, folder, secrets
        self._image = image or {"PATH": os.pathsep.join((os.path.dirname(sys.executable), os.defpath))}
        self._executors = self.spec["deploymentSpec"]["executors"]
        kubernetes = platform[0]["platforms"]["kubernetes"] if platform else {}
        self._platform = kubernetes.get("deploymentSpec", {}).get("executors", {})
        self.outcomes = {}

    def run(self, values):
        """Run every step; parameters without a value have their defaults. AssertionError: a step failed every time."""
        # Open-source backends run containers only.
        assert {kind for executor in self._executors.values() for kind in executor} == {"container"}
        for executor in self._platform.values():
            for mount in executor.get("pvcMount", []):
                os.makedirs(mount["mountPath"], exist_ok=True)
        inputs = self.spec["root"]["inputDefinitions"]["parameters"]
        defaults = {name: about["defaultValue"] for name, about in inputs.items() if "defaultValue" in about}
        self._dag(self.spec["root"]["dag"]["tasks"], {**defaults, **values})

    def _dag(self, tasks, inputs):
        outputs = {}
        upstream = {name: task.get("dependentTasks", []) for name, task in tasks.items()}
        for name in graphlib.TopologicalSorter(upstream).static_order():
            task = tasks[name]
            values = {
                key: self._input(source, inputs, outputs)
                for key, source in task.get("inputs", {}).get("parameters", {}).items()
            }
            if condition := task.get("triggerPolicy", {}).get("condition"):
                parameter, expected = _EQUALS.fullmatch(condition).groups()
                if values[parameter] != expected:
                    self.outcomes[name] = SKIPPED
                    continue
            component = self.spec["components"][task["componentRef"]["name"]]
            if "dag" in component:
                self._dag(component["dag"]["tasks"], values)
                continue
            outputs[name] = self._step(name, component, values, task.get("retryPolicy", {}).get("maxRetryCount", 0))

    def _input(self, source, inputs, outputs):
        if "componentInputParameter" in source:
            return inputs[source["componentInputParameter"]]
        if "taskOutputParameter" in source:
            output = source["taskOutputParameter"]
            return outputs[output["producerTask"]][output["outputParameterKey"]]
        constant = source["runtimeValue"]["constant"]
        # Backends replace a constant that is a placeholder, but no placeholder inside a longer constant.
        return self._run_id if constant == "{{$.pipeline_job_uuid}}" else constant

    def _step(self, name, component, values, retries):
        """Run a container's command until it succeeds; return its outputs."""
        folder = os.path.join(self._folder, name)
        os.makedirs(folder, exist_ok=True)
        files = {key: os.path.join(folder, key) for key in component.get("outputDefinitions", {}).get("parameters", {})}
        label = component["executorLabel"]
        container = self._executors[label]["container"]
        filled = {f"{{{{$.inputs.parameters['{key}']}}}}": _text(value) for key, value in values.items()}
        filled |= {f"{{{{$.outputs.parameters['{key}'].output_file}}}}": file for key, file in files.items()}
        # Backends replace no placeholders in the program's name.
        program, *words = [*container["command"], *container.get("args", [])]
        command = ["/usr/bin/env", "--", program, *(_fill(word, filled) for word in words)]
        environment, log = self._environment(label), os.path.join(folder, "log")
        codes = []
        while len(codes) <= retries and 0 not in codes:
            with open(log, "ab") as output:
                step = subprocess.run(
                    command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            codes.append(step.returncode)
        assert codes[-1] == 0, f"step {name} failed with exit codes {codes}; its log is {log}"
        self.outcomes[name] = DONE
        return {key: open(path, encoding="utf-8").read() for key, path in files.items()}

    def _environment(self, label):
        """The environment from the image, the container and its Secrets."""
        variables = dict(self._image)
        variables |= {pair["name"]: pair["value"] for pair in self._executors[label]["container"].get("env", [])}
        for secret in self._platform.get(label, {}).get("secretAsEnv", []):
            variables |= {pair["envVar"]: self._secrets[pair["envVar"]] for pair in secret["keyToEnv"]}
        return variables


def _text(value):
    """A value in the form in which a backend's launcher writes it into a command."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, separators=(",", ":"))


def _fill(word, filled):
    for placeholder, value in filled.items():
        word = word.replace(placeholder, value)
    return word
