"""ModelPush: TFX's Pusher with its own executor and the inputs needed for lineage."""

from __future__ import annotations

import json
from typing import Any

from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto import pusher_pb2
from tfx.types import channel, component_spec, standard_artifacts
from tfx.types.standard_component_specs import PusherSpec

from components.pusher.executor import Executor
from components.pusher.lineage import DECONTAMINATED


class ModelPushSpec(component_spec.ComponentSpec):
    """Spec of Pusher with its inputs required, and two more inputs."""

    PARAMETERS = PusherSpec.PARAMETERS
    INPUTS = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
        "model_blessing": component_spec.ChannelParameter(type=standard_artifacts.ModelBlessing),
        "infra_blessing": component_spec.ChannelParameter(type=standard_artifacts.InfraBlessing),
        "evaluation": component_spec.ChannelParameter(type=standard_artifacts.ModelEvaluation),
    }
    OUTPUTS = PusherSpec.OUTPUTS


class ModelPush(base_component.BaseComponent):
    """`model`, its `model_run`, `evaluation` and both blessings -> `pushed_model` (PushedModel).

    Only a model blessed by both the quality gate and the serving check is pushed.
    """

    SPEC_CLASS = ModelPushSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        model: channel.BaseChannel,
        model_run: channel.BaseChannel,
        model_blessing: channel.BaseChannel,
        infra_blessing: channel.BaseChannel,
        evaluation: channel.BaseChannel,
        push_destination: pusher_pb2.PushDestination,
        decontaminated: list[dict[str, Any]] | None = None,
    ):
        """Record `decontaminated`, the evaluation sets that the corpus has no texts of, in the version's lineage."""
        spec = ModelPushSpec(
            model=model,
            model_run=model_run,
            model_blessing=model_blessing,
            infra_blessing=infra_blessing,
            evaluation=evaluation,
            push_destination=push_destination,
            custom_config=json.dumps({DECONTAMINATED: decontaminated}),
            pushed_model=channel.Channel(type=standard_artifacts.PushedModel),
        )
        super().__init__(spec=spec)
