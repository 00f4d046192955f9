"""TFX's Pusher, with atomic pushes: a version appears in the serving folder complete or not at all."""

from __future__ import annotations

import json
import os
from typing import Any

from tfx.components.pusher import executor as pusher_executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from components.pusher.lineage import DECONTAMINATED, write_lineage

# Inside the serving folder, so that the rename stays on one file system; model servers ignore this name.
STAGING = ".pushing"


class Executor(pusher_executor.Executor):
    """Copies to a staging folder and renames: TFX copies directly to `BASE/VERSION`, which a kill leaves incomplete.

    Versions are Unix times, as in TFX, and increase even if the clock does not.
    """

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        key = standard_component_specs.PUSH_DESTINATION_KEY
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(exec_properties[key], destination)
        base = destination.filesystem.base_directory
        staging = os.path.join(base, STAGING)
        if fileio.exists(staging):
            fileio.rmtree(staging)
        destination.filesystem.base_directory = staging
        super().Do(input_dict, output_dict, {**exec_properties, key: proto_utils.proto_to_json(destination)})

        pushed = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        staged = pushed.get_string_custom_property("pushed_version")
        if not staged:
            return
        versions = [int(name) for name in fileio.listdir(base) if name.isdigit()]
        version = str(max([int(staged), *(v + 1 for v in versions)]))
        target = os.path.join(base, version)
        model = self.GetModelPath(input_dict)
        for copy in (os.path.join(staging, staged), pushed.uri):
            _link_files(copy, model)
        config = json.loads(exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY) or "{}")
        write_lineage(os.path.join(staging, staged), version, input_dict, self._context, config.get(DECONTAMINATED))
        fileio.rename(os.path.join(staging, staged), target)
        fileio.rmtree(staging)
        self._MarkPushed(pushed, pushed_destination=target, pushed_version=version)


def _link_files(copy: str, model: str) -> None:
    """Replace files of a copy of a model by hard links, if both lie on one local file system; each can be deleted.

    TFX keeps a model three times: as the Trainer's artifact, as the pushed one, and where it is served.
    """
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
