"""Resources of each step on a cluster: cores, memory, accelerators, node selection."""

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from bert_keras.errors import InputError
from pipeline import stages


@dataclasses.dataclass(frozen=True)
class StageResources:
    """Resources of one step's container, in Kubernetes' notation: cpu "4" or "500m", memory (request and limit) "8Gi".

    `accelerator` is a cluster's resource ("nvidia.com/gpu", "google.com/tpu") or Vertex AI's type ("NVIDIA_L4"); ""
    for none. `node_selector` has labels that the node must have, such as the type and the topology of its TPU,
    `tolerations` taints that it may have.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)  # YAML reads 4 as a number

    cpu: Annotated[str, Field(pattern=r"^([0-9]*\.)?[0-9]+m?$")] = "2"
    memory: Annotated[str, Field(pattern=r"^[0-9]+([EPTGMK]i?)?$")] = "4Gi"
    accelerator: str = ""
    accelerator_count: Literal[1, 2, 4, 8, 16] = 1  # the counts that the SDK of Kubeflow Pipelines accepts
    node_selector: dict[str, str] = dataclasses.field(default_factory=dict)
    tolerations: tuple[dict[Literal["key", "operator", "value", "effect"], str], ...] = ()


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
        stage = stages.stage_of(step)
        default = dataclasses.asdict(DEFAULTS.get(step, DEFAULTS.get(stage, StageResources())))
        changes = given.get(step, given.get(stage, {}))
        try:
            resources[step] = TypeAdapter(StageResources).validate_python(default | changes)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise InputError(f"{path}: {step}: {where}: {problem['msg']} (docs/orchestration.md)") from error
    return resources


def _read(path: str, steps: set[str]) -> dict[str, dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            given = TypeAdapter(dict[str, dict[str, Any]]).validate_python(yaml.safe_load(file) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as YAML such as 'Trainer: {{memory: 32Gi}}': {reason}") from error
    for step in given:
        if step not in steps:
            near = difflib.get_close_matches(step, sorted(steps), n=1, cutoff=0.0)[0]
            raise InputError(f"{path}: {step} is not a step of this pipeline; the nearest one is {near}")
    return given
