"""TFX's Pusher, but a version appears in the serving folder whole or not at all."""

from __future__ import annotations

import os
from typing import Any

from tfx.components.pusher import executor as pusher_executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from components.model_push.lineage import write_lineage

# Inside the serving folder, so that the rename stays on one file system; no model server takes it for a version.
STAGING = ".pushing"


class Executor(pusher_executor.Executor):
    """TFX copies straight into `BASE/VERSION`, which a kill leaves half there; here the copy is renamed when done.

    Versions are Unix times, as TFX's, and increase even where the clock does not.
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
        write_lineage(os.path.join(staging, staged), version, input_dict, self._context)
        fileio.rename(os.path.join(staging, staged), target)
        fileio.rmtree(staging)
        self._MarkPushed(pushed, pushed_destination=target, pushed_version=version)
