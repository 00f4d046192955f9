"""PretrainExampleGen: makes pre-training examples from documents and a vocabulary."""

from __future__ import annotations

import dataclasses
import json

from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import channel, component_spec, standard_artifacts

from components.artifacts import Vocabulary
from components.code_version import code_fingerprint
from components.pretrain_example_gen.executor import Executor
from components.pretrain_example_gen.settings import ExampleSettings


class PretrainExampleGenSpec(component_spec.ComponentSpec):
    """`settings`: JSON of `ExampleSettings`; `replay`: 1 for examples that training mixes into the others, else 0."""

    PARAMETERS = {
        "settings": component_spec.ExecutionParameter(type=str),
        "replay": component_spec.ExecutionParameter(type=int),
        "code": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {
        "documents": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "vocabulary": component_spec.ChannelParameter(type=Vocabulary),
    }
    OUTPUTS = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}


class PretrainExampleGen(base_beam_component.BaseBeamComponent):
    """Makes `examples` (Examples, the splits of `documents`) from `documents` (Examples) and `vocabulary`."""

    SPEC_CLASS = PretrainExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        documents: channel.BaseChannel,
        vocabulary: channel.BaseChannel,
        settings: ExampleSettings,
        replay: bool = False,
    ):
        spec = PretrainExampleGenSpec(
            documents=documents,
            vocabulary=vocabulary,
            settings=json.dumps(dataclasses.asdict(settings), sort_keys=True),
            replay=int(replay),
            code=code_fingerprint(__name__),
            examples=channel.Channel(type=standard_artifacts.Examples),
        )
        super().__init__(spec=spec)
