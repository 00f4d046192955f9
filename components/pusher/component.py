"""ModelPush: TFX's Pusher, with pushes as a whole: a version that has its `saved_model.pb` is complete.

A file system renames the version into place, so it appears at once. An object store has no folders: there the files
are moved one by one, `saved_model.pb` last, which TensorFlow Serving and `serving.models.store` wait for. Two pipelines
may push to one folder; on an object store not within the same second, since nothing reserves a version's number.
"""

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tfx.components.pusher import executor as pusher_executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_artifacts, standard_component_specs
from tfx.utils import proto_utils

from bert_keras.saved_model.servable_ops import SAVED_MODEL_FILE
from components.pusher.lineage import write_lineage
from components.stage import Stage

# Inside the serving folder, so that the rename stays on one file system; model servers ignore names like this one.
STAGING = ".pushing-"


class Executor(pusher_executor.Executor):
    """Copies to a staging folder and moves: TFX copies directly to `BASE/VERSION`, which a kill leaves incomplete.

    Versions are Unix times, as in TFX, and increase even if the clock does not.
    """

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        key = standard_component_specs.PUSH_DESTINATION_KEY
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(exec_properties[key], destination)
        base = destination.filesystem.base_directory
        pushed = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        # The pipeline's own name, so that it finds what its killed push left, and leaves alone what another one copies.
        pipeline = hashlib.sha256(os.path.dirname(pushed.uri).encode()).hexdigest()[:16]
        staging = os.path.join(base, STAGING + pipeline)
        _remove(staging)
        destination.filesystem.base_directory = staging
        try:
            super().Do(input_dict, output_dict, {**exec_properties, key: proto_utils.proto_to_json(destination)})
            if copied := pushed.get_string_custom_property("pushed_version"):
                staged = os.path.join(staging, copied)
                for copy in (staged, pushed.uri):
                    _link_files(copy, self.GetModelPath(input_dict))
                config = json.loads(exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY) or "{}")
                lineage = input_dict, self._context, config
                target = _publish(staged, base, lambda version: write_lineage(staged, version, *lineage))
                self._MarkPushed(pushed, pushed_destination=target, pushed_version=os.path.basename(target))
        finally:
            _remove(staging)


def _remove(folder: str) -> None:
    if fileio.exists(folder):
        fileio.rmtree(folder)


def _publish(staged: str, base: str, describe: Callable[[str], None]) -> str:
    """Move a complete folder to the next version of `base`, after `describe(version)`; returns its path."""
    while True:
        names = (str(name).rstrip("/") for name in fileio.listdir(base))
        versions = [int(name) for name in names if name.isascii() and name.isdigit()]
        version = str(max([int(os.path.basename(staged)), *(number + 1 for number in versions)]))
        describe(version)
        target = os.path.join(base, version)
        try:
            if "://" in base and not base.startswith("hdfs://"):
                _move_files(staged, target)
            else:
                fileio.rename(staged, target)
            return target
        except (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError):
            # Another pipeline has taken the number since.
            if not fileio.exists(target):
                raise


def _move_files(staged: str, target: str) -> None:
    paths = [os.path.join(str(folder), str(name)) for folder, _, names in fileio.walk(staged) for name in names]
    for path in sorted(paths, key=lambda path: os.path.basename(path) == SAVED_MODEL_FILE):
        moved = os.path.join(target, os.path.relpath(path, staged))
        fileio.makedirs(os.path.dirname(moved))
        fileio.copy(path, moved)


def _link_files(copy: str, model: str) -> None:
    """Replace files of a copy of a model by hard links, if both lie on one local file system; each can be deleted."""
    # TFX keeps a model three times: as the Trainer's artifact, as the pushed one, and where it is served.
    for folder, _, names in os.walk(model):
        for name in names:
            path = os.path.join(folder, name)
            target = os.path.join(copy, os.path.relpath(path, model))
            try:
                if not os.path.samefile(path, target):
                    os.link(path, f"{target}.link")
                    os.replace(f"{target}.link", target)
            except OSError:
                return  # another file system, or one without hard links: keep the copies


class ModelPush(
    Stage,
    executor=Executor,
    inputs={
        "model": standard_artifacts.Model,
        "model_run": standard_artifacts.ModelRun,
        "model_blessing": standard_artifacts.ModelBlessing,
        "infra_blessing": standard_artifacts.InfraBlessing,
        "evaluation": standard_artifacts.ModelEvaluation,
    },
    parameters={},
    like=standard_component_specs.PusherSpec,
):
    """Pushes a `model` that both the quality gate and the serving check have blessed; all inputs are required."""

    def __init__(self, corpus: dict[str, Any] | None = None, **values: Any):
        """Record what `components.pusher.lineage.CORPUS` names in the version's lineage."""
        super().__init__(custom_config=corpus or {}, **values)
