"""Resources of each step on a cluster: cores, memory, accelerators, node selection."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from bert_keras.errors import InputError
from pipeline import stages

_CPU = re.compile(r"([0-9]*\.)?[0-9]+m?")
_MEMORY = re.compile(r"[0-9]+([EPTGMK]i?)?")
# The counts that the SDK of Kubeflow Pipelines accepts.
_COUNTS = (1, 2, 4, 8, 16)


@dataclasses.dataclass(frozen=True)
class StageResources:
    """Resources of one step's container, in Kubernetes' notation: cpu "4" or "500m", memory (request and limit) "8Gi".

    `accelerator` is a cluster's resource ("nvidia.com/gpu", "google.com/tpu") or Vertex AI's type ("NVIDIA_L4"); ""
    for none. `node_selector` has labels that the node must have, such as the type and the topology of its TPU,
    `tolerations` taints that it may have: `key`, `operator`, `value`, `effect`.
    """

    cpu: str = "2"
    memory: str = "4Gi"
    accelerator: str = ""
    accelerator_count: int = 1
    node_selector: dict[str, str] = dataclasses.field(default_factory=dict)
    tolerations: tuple[dict[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not _CPU.fullmatch(self.cpu):
            raise ValueError(f"cpu is {self.cpu!r}; give a number of cores, such as '4' or '500m'")
        if not _MEMORY.fullmatch(self.memory):
            raise ValueError(f"memory is {self.memory!r}; give a size, such as '8Gi'")
        if self.accelerator_count not in _COUNTS:
            counts = ", ".join(map(str, _COUNTS))
            raise ValueError(f"accelerator_count is {self.accelerator_count}; it must be one of {counts}")
        for toleration in self.tolerations:
            if unknown := sorted(toleration.keys() - {"key", "operator", "value", "effect"}):
                raise ValueError(f"a toleration has {unknown[0]}; allowed: key, operator, value and effect")


# Steps that read a few kilobytes; importing TFX and TensorFlow takes one gigabyte.
_SMALL = StageResources(cpu="1", memory="2Gi")
DEFAULTS = {
    "compile": _SMALL,
    # A million or two words to learn from, a kilobyte each; and the distinct words of the text, which Beam groups in
    # memory unless it is given an engine: 0.35 KB each.
    stages.VOCAB_GEN: StageResources(memory="8Gi"),
    stages.PRETRAIN_EXAMPLE_GEN: StageResources(cpu="4", memory="8Gi"),
    stages.IMPORT_SCHEMA_GEN: _SMALL,
    stages.TRAINER: StageResources(cpu="8", memory="16Gi"),
    stages.BASELINE: _SMALL,
    "finish": _SMALL,
    "pushed": StageResources(cpu="500m", memory="1Gi"),
}


def resources_of(path: str | None, steps: Iterable[str]) -> dict[str, StageResources]:
    """The resources of each step: the defaults, overridden by a YAML file, `Trainer: {cpu: "16", memory: 32Gi}`.

    An entry for a stage applies to its second phase too. InputError: the file cannot be read, or names an unknown
    step or resource.
    """
    steps = list(steps)
    given = {} if path is None else _read(path, {*steps, *map(stages.stage_of, steps)})
    resources = {}
    for step in steps:
        default = DEFAULTS.get(step, DEFAULTS.get(stages.stage_of(step), StageResources()))
        resources[step] = _changed(path, step, default, given.get(step, given.get(stages.stage_of(step), {})))
    return resources


def _read(path: str, steps: set[str]) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            given = yaml.safe_load(file) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, Mapping):
        raise InputError(f"{path}: has no steps; an example is 'Trainer: {{memory: 32Gi}}'")
    for step in given:
        if step not in steps:
            near = difflib.get_close_matches(str(step), sorted(steps), n=1, cutoff=0.0)[0]
            raise InputError(f"{path}: {step} is not a step of this pipeline; the nearest one is {near}")
    return dict(given)


def _changed(path: str | None, step: str, default: StageResources, given: Any) -> StageResources:
    if not isinstance(given, Mapping):
        raise InputError(f"{path}: {step} is {given!r}; an example is '{step}: {{memory: 32Gi}}'")
    known = {field.name for field in dataclasses.fields(StageResources)}
    for name in given:
        if name not in known:
            raise InputError(f"{path}: {step}: unknown resource {name}; there are {', '.join(sorted(known))}")
    # YAML reads 4 as a number; Kubernetes takes a string.
    numbers = {name: str(given[name]) for name in ("cpu", "memory") if isinstance(given.get(name), (int, float))}
    try:
        made = {**dataclasses.asdict(default), **given, **numbers}
        return TypeAdapter(StageResources).validate_python(made)
    except ValidationError as error:
        problem = error.errors()[0]
        message = problem["msg"].removeprefix("Value error, ")
        where = ".".join(str(part) for part in problem["loc"])
        raise InputError(f"{path}: {step}: {where + ': ' if where else ''}{message}") from error
