"""Reads a compiled pipeline file, and values of its parameters."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from bert_keras.errors import InputError

# The placeholder for KFP's message to a step: its inputs, and where its outputs go.
EXECUTOR_INPUT = "{{$}}"
# Description and Python types of each parameter type.
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "NUMBER_INTEGER": ("a whole number", (int,)),
    "NUMBER_DOUBLE": ("a number", (int, float)),
    "LIST": ("""a list, as '["a", "b"]'""", (list,)),
}


@dataclasses.dataclass(frozen=True)
class CompiledPipeline:
    """A compiled pipeline file.

    Attributes:
        spec: Kubeflow's PipelineSpec, as plain data.
        platform: Kubeflow's PlatformSpec for Kubernetes; empty for Vertex AI.
    """

    path: str
    spec: Mapping[str, Any]
    platform: Mapping[str, Any]

    @classmethod
    def read(cls, path: str) -> CompiledPipeline:
        """Read a file written by `bert-tfx compile kubeflow`.

        Raises:
            InputError: the file cannot be read, or is not a compiled pipeline.
        """
        try:
            with open(path, encoding="utf-8") as file:
                documents = list(yaml.safe_load_all(file))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
        if not documents or not isinstance(documents[0], Mapping) or "pipelineInfo" not in documents[0]:
            raise InputError(f"{path} is not a compiled pipeline; bert-tfx compile kubeflow writes one")
        return cls(path, documents[0], documents[1] if len(documents) > 1 else {})

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.spec["pipelineInfo"]["name"]

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Type and default of each parameter."""
        return self.spec["root"].get("inputDefinitions", {}).get("parameters", {})

    def values(self, given: Sequence[str]) -> dict[str, Any]:
        """Parse `name=value` texts by the types of the parameters.

        The defaults of steps and thresholds are those of the recipe that the file was compiled for, so another recipe
        needs them as parameters too.

        Raises:
            InputError: an unknown parameter, a value of the wrong type, or a missing one.
        """
        values: dict[str, Any] = {}
        for text in given:
            name, equals, value = text.partition("=")
            if not equals or name not in self.inputs:
                near = difflib.get_close_matches(name, list(self.inputs), n=1, cutoff=0.0)[0]
                problem = f"{name} is not a parameter of {self.path}" if equals else "is not NAME=VALUE"
                raise InputError(f"--parameter {text}: {problem}; the nearest one is {near}")
            values[name] = self._value(text, self.inputs[name]["parameterType"], value)
        if missing := [
            name for name, about in self.inputs.items() if not about.get("isOptional") and name not in values
        ]:
            raise InputError(f"--parameter {missing[0]}=VALUE: required; {self.path} has no default for it")
        default = self.inputs["recipe"]["defaultValue"]
        if values.get("recipe", default) != default:
            numbers = [name for name, about in self.inputs.items() if about["parameterType"].startswith("NUMBER_")]
            if unset := [name for name in numbers if name not in values]:
                raise InputError(
                    f"--parameter recipe={values['recipe']}: {self.path} was compiled for {default}, and so were its "
                    f"defaults: give {', '.join(unset)} too, or compile it for {values['recipe']}"
                )
        return values

    def _value(self, text: str, kind: str, value: str) -> Any:
        if kind not in _KINDS:
            return value
        description, types = _KINDS[kind]
        try:
            made = json.loads(value)
        except ValueError:
            made = None
        if not isinstance(made, types) or isinstance(made, bool):
            raise InputError(f"--parameter {text}: it must be {description}")
        return made
