"""ServingValidator: serves a blessed model and issues the InfraBlessing that Pusher requires.

Replaces TFX's InfraValidator on machines without Docker and Kubernetes: docs/decisions/0012.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import tensorflow as tf
from pydantic import TypeAdapter
from tfx.components.util import model_utils
from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils, standard_artifacts
from tfx.utils import path_utils

from components.io.shards import write_json
from components.serving_validator.check import ServingVerdict, check_model
from components.serving_validator.limits import ServingLimits
from components.stage import Stage

VERDICT_FILE = "verdict.json"
# As in InfraValidator: Pusher reads the property, people the file.
BLESSED_FILE, NOT_BLESSED_FILE, BLESSED_KEY = "INFRA_BLESSED", "INFRA_NOT_BLESSED", "blessed"


class Executor(base_executor.BaseExecutor):
    """Serves the model for a check, unless the quality gate has refused it.

    A model that fails the check is a result, not an error: the verdict is kept and reported, and Pusher pushes nothing.

    Raises:
        StageError: the server cannot be started.
    """

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        model = artifact_utils.get_single_instance(input_dict["model"])
        blessing = artifact_utils.get_single_instance(output_dict["blessing"])
        verdict = ServingVerdict(blessed=False, checked=False)
        if model_utils.is_model_blessed(artifact_utils.get_single_instance(input_dict["model_blessing"])):
            limits = TypeAdapter(ServingLimits).validate_json(exec_properties["limits"])
            verdict = check_model(path_utils.serving_model_path(model.uri), limits)
        _write(verdict, blessing)


def _write(verdict: ServingVerdict, blessing: artifact.Artifact) -> None:
    tf.io.gfile.makedirs(blessing.uri)
    name = BLESSED_FILE if verdict.blessed else NOT_BLESSED_FILE
    with tf.io.gfile.GFile(os.path.join(blessing.uri, name), "w") as file:
        file.write("".join(f"{problem}\n" for problem in verdict.problems))
    write_json(os.path.join(blessing.uri, VERDICT_FILE), dataclasses.asdict(verdict))
    blessing.set_int_custom_property(BLESSED_KEY, int(verdict.blessed))
    blessing.set_string_custom_property("reason", "; ".join(verdict.problems))


class ServingValidator(
    Stage,
    executor=Executor,
    inputs={"model": standard_artifacts.Model, "model_blessing": standard_artifacts.ModelBlessing},
    parameters={"limits": str, "code": str},
    outputs={"blessing": standard_artifacts.InfraBlessing},
):
    """Gives a `blessing` (with `verdict.json`) to a `model` that is served within `limits` (`ServingLimits`)."""
