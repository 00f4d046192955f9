"""InitialModel: exports the model that a pre-training starts from, for the Trainer and as the gate's baseline."""

import json
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import path_utils

from bert_keras.errors import InputError
from bert_keras.jobs import PretrainJob
from components.stage import Stage
from components.trainer.initial_model import export_initial_model


class Executor(base_executor.BaseExecutor):
    """Writes the model; its properties say which parts the source has, which are drawn, how many tokens are new."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        model = artifact_utils.get_single_instance(output_dict["model"])
        examples = artifact_utils.get_single_uri(input_dict["examples"])
        folders = {"examples": [examples], "output_dir": path_utils.serving_model_dir(model.uri)}
        job = PretrainJob.from_fields({**json.loads(exec_properties["job"]), **folders})
        source = artifact_utils.get_single_uri(input_dict["source"])
        weights = export_initial_model(job, source, json.loads(exec_properties["cased"]))
        if json.loads(exec_properties["judged"]) and {"masked-LM head", "generator"} & {*weights.untrained}:
            raise InputError(
                f"{source}: has no masked-LM head (an ELECTRA: no generator), so what it knows of the reference corpus "
                "cannot be scored; leave gate.max_forgetting out of the first run"
            )
        model.set_string_custom_property("kept", ", ".join(weights.trained))
        model.set_string_custom_property("drawn", ", ".join(weights.untrained))
        model.set_int_custom_property("new_tokens", weights.new_tokens)


class InitialModel(
    Stage,
    executor=Executor,
    inputs={"source": standard_artifacts.Model, "examples": standard_artifacts.Examples},
    parameters={"job": str, "cased": str, "judged": str, "code": str},
    outputs={"model": standard_artifacts.Model},
):
    """Makes a `model` at step 0 from `source`, in any format that is read.

    The model has the vocabulary of the examples, which may extend the source's. `job` is a `PretrainJob`; `cased`:
    whether the source's vocabulary keeps case, None: it says so; `judged`: whether the gate needs the model's score.
    """
