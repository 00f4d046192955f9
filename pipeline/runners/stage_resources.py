"""What each step asks of its cluster: cores, memory, accelerators, and the nodes that have them."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from bert_keras.errors import InputError

_CPU = re.compile(r"([0-9]*\.)?[0-9]+m?")
_MEMORY = re.compile(r"[0-9]+([EPTGMK]i?)?")
# What the SDK of Kubeflow Pipelines takes.
_COUNTS = (1, 2, 4, 8, 16)


@dataclasses.dataclass(frozen=True)
class StageResources:
    """What the container of one step asks for.

    Attributes:
        cpu: cores, as Kubernetes writes them: "4", "500m".
        memory: requested, and the limit: "8Gi".
        accelerator: the resource of a cluster ("nvidia.com/gpu", "google.com/tpu") or Vertex AI's type ("NVIDIA_L4");
            empty for none.
        accelerator_count: how many of them.
        node_selector: labels that the node must have, such as the kind and the topology of its TPU.
        tolerations: taints that the node may have: `key`, `operator`, `value`, `effect`.
    """

    cpu: str = "2"
    memory: str = "4Gi"
    accelerator: str = ""
    accelerator_count: int = 1
    node_selector: dict[str, str] = dataclasses.field(default_factory=dict)
    tolerations: tuple[dict[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not _CPU.fullmatch(self.cpu):
            raise ValueError(f"cpu is {self.cpu!r}; it is a number of cores, such as '4' or '500m'")
        if not _MEMORY.fullmatch(self.memory):
            raise ValueError(f"memory is {self.memory!r}; it is a size, such as '8Gi'")
        if self.accelerator_count not in _COUNTS:
            raise ValueError(
                f"accelerator_count is {self.accelerator_count}; it is one of {', '.join(map(str, _COUNTS))}"
            )
        for toleration in self.tolerations:
            if unknown := sorted(toleration.keys() - {"key", "operator", "value", "effect"}):
                raise ValueError(f"a toleration has {unknown[0]}; it has key, operator, value and effect")


# Steps that read a few kilobytes; TFX and TensorFlow alone take one gigabyte.
_SMALL = StageResources(cpu="1", memory="2Gi")
DEFAULTS = {
    "compile": _SMALL,
    "PretrainExampleGen": StageResources(cpu="4", memory="8Gi"),
    "ImportSchemaGen": _SMALL,
    "Trainer": StageResources(cpu="8", memory="16Gi"),
    "Tuner": StageResources(cpu="8", memory="16Gi"),
    "Baseline": _SMALL,
    "finish": _SMALL,
    "pushed": StageResources(cpu="500m", memory="1Gi"),
}


def resources_of(path: str | None, steps: Iterable[str]) -> dict[str, StageResources]:
    """The resources of each step: those of a file, in what it says, and else the defaults.

    Args:
        path: a YAML file of steps and what they ask for, as `Trainer: {cpu: "16", accelerator: nvidia.com/gpu}`; what
            is said of a stage holds for its second phase too.
        steps: the steps of the pipeline.

    Raises:
        InputError: the file cannot be read, or names a step or a resource that there is not.
    """
    steps = list(steps)
    given = {} if path is None else _read(path, {*steps, *map(_stage, steps)})
    found = {}
    for step in steps:
        default = DEFAULTS.get(step, DEFAULTS.get(_stage(step), StageResources()))
        found[step] = _changed(path, step, default, given.get(step, given.get(_stage(step), {})))
    return found


def _stage(step: str) -> str:
    """The stage that a step is one phase of."""
    return step.removesuffix("_second_phase")


def _read(path: str, steps: set[str]) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            given = yaml.safe_load(file) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, Mapping):
        raise InputError(f"{path}: has no steps; it says, for example, 'Trainer: {{memory: 32Gi}}'")
    for step in given:
        if step not in steps:
            near = difflib.get_close_matches(str(step), sorted(steps), n=1, cutoff=0.0)[0]
            raise InputError(f"{path}: {step} is not a step of this pipeline; the nearest one is {near}")
    return dict(given)


def _changed(path: str | None, step: str, default: StageResources, given: Any) -> StageResources:
    if not isinstance(given, Mapping):
        raise InputError(f"{path}: {step} is {given!r}; it says, for example, '{step}: {{memory: 32Gi}}'")
    known = {field.name for field in dataclasses.fields(StageResources)}
    for name in given:
        if name not in known:
            raise InputError(f"{path}: {step} has {name}, which is no resource; there are {', '.join(sorted(known))}")
    # YAML reads 4 as a number, Kubernetes as what "4" is.
    numbers = {name: str(given[name]) for name in ("cpu", "memory") if isinstance(given.get(name), (int, float))}
    try:
        made = {**dataclasses.asdict(default), **given, **numbers}
        return TypeAdapter(StageResources).validate_python(made)
    except ValidationError as error:
        problem = error.errors()[0]
        said = problem["msg"].removeprefix("Value error, ")
        where = ".".join(str(part) for part in problem["loc"])
        raise InputError(f"{path}: {step}: {where + ': ' if where else ''}{said}") from error
