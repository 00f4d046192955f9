"""InitialModel: exports the model that a pre-training starts from, for the Trainer and as the gate's baseline."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, channel, component_spec, standard_artifacts
from tfx.utils import path_utils

from bert_keras.errors import InputError
from bert_keras.initial_model import export_initial_model
from bert_keras.jobs import PretrainJob
from components.code_version import code_fingerprint


class Executor(base_executor.BaseExecutor):
    """Writes the model; its properties say which parts the source has, which are drawn, how many tokens are new."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        model = artifact_utils.get_single_instance(output_dict["model"])
        job = PretrainJob.from_fields(
            {
                **json.loads(exec_properties["job"]),
                "examples": [artifact_utils.get_single_uri(input_dict["examples"])],
                "output_dir": path_utils.serving_model_dir(model.uri),
            }
        )
        source = artifact_utils.get_single_uri(input_dict["source"])
        weights = export_initial_model(job, source, json.loads(exec_properties["cased"]))
        if json.loads(exec_properties["judged"]) and {"masked-LM head", "generator"} & {*weights.drawn}:
            raise InputError(
                f"{source}: has no masked-LM head (an ELECTRA: no generator), so what it knows of the reference corpus "
                "cannot be scored; leave gate.max_forgetting out of the first run"
            )
        model.set_string_custom_property("kept", ", ".join(weights.kept))
        model.set_string_custom_property("drawn", ", ".join(weights.drawn))
        model.set_int_custom_property("new_tokens", weights.new_tokens)


class InitialModelSpec(component_spec.ComponentSpec):
    """`job`: JSON of `PretrainJob`; `cased`: JSON, whether the source's vocabulary keeps case, null: it says so;
    `judged`: JSON, whether the gate has a bound that needs the model's score.
    """

    PARAMETERS = {
        "job": component_spec.ExecutionParameter(type=str),
        "cased": component_spec.ExecutionParameter(type=str),
        "judged": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {
        "source": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
    }
    OUTPUTS = {"model": component_spec.ChannelParameter(type=standard_artifacts.Model)}


class InitialModel(base_component.BaseComponent):
    """`source` (Model, in any format that is read), `examples` (Examples) -> `model` (Model) at step 0.

    The model has the vocabulary of the examples, which may extend the source's.
    """

    SPEC_CLASS = InitialModelSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        source: channel.BaseChannel,
        examples: channel.BaseChannel,
        job: PretrainJob,
        cased: bool | None,
        judged: bool = False,
    ):
        spec = InitialModelSpec(
            source=source,
            examples=examples,
            job=json.dumps(dataclasses.asdict(job), sort_keys=True),
            cased=json.dumps(cased),
            judged=json.dumps(judged),
            code=code_fingerprint(__name__),
            model=channel.Channel(type=standard_artifacts.Model),
        )
        super().__init__(spec=spec)
