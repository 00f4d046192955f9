"""ExampleGate: writes a verdict, or stops the run, given anomalies and figures of the data.

TFX's ExampleValidator writes anomalies without stopping the run; the figures are counted while the data are made.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import tensorflow as tf
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, channel, component_spec, standard_artifacts

from bert_keras.data.example_format import EXAMPLE_SPEC_FILE
from bert_keras.errors import StageError
from bert_keras.files import files_in
from components.artifacts import ExampleVerdict
from components.code_version import code_fingerprint
from components.corpus_gen.record.counts_file import COUNTS_FILE
from components.example_gate.limits import DataLimits, check_limits
from components.io.shards import read_json, write_json

VERDICT_FILE = "verdict.json"


class Executor(base_executor.BaseExecutor):
    """Reads the anomalies of every split and the counts of the data.

    Raises:
        StageError: there are anomalies, or figures outside their limits; lists all: feature and rule, or figure,
            limit and remedy.
    """

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        anomalies = artifact_utils.get_single_instance(input_dict["anomalies"])
        splits = artifact_utils.decode_split_names(anomalies.split_names)
        violations = []
        for split in splits:
            (path,) = files_in(os.path.join(anomalies.uri, f"Split-{split}"))
            with tf.io.gfile.GFile(path, "rb") as file:
                result = anomalies_pb2.Anomalies.FromString(file.read())
            if result.HasField("dataset_anomaly_info"):
                violations.append(f"{split}: {result.dataset_anomaly_info.description}")
            violations += [f"{split}: {name}: {info.description}" for name, info in sorted(result.anomaly_info.items())]
        figures = check_limits(
            read_json(f"{artifact_utils.get_single_uri(input_dict['examples'])}/{EXAMPLE_SPEC_FILE}"),
            read_json(f"{artifact_utils.get_single_uri(input_dict['documents'])}/{COUNTS_FILE}"),
            TypeAdapter(DataLimits).validate_json(exec_properties["limits"]),
        )
        outside = [figure.problem for figure in figures if figure.problem]
        problems = ["the examples violate their schema: " + "; ".join(violations)] if violations else []
        problems += ["the data are outside the recipe's limits: " + "; ".join(outside)] if outside else []
        if problems:
            raise StageError("; ".join(problems))
        output_dir = artifact_utils.get_single_uri(output_dict["verdict"])
        tf.io.gfile.makedirs(output_dir)
        verdict = {"anomalies": 0, "splits": splits, "figures": [dataclasses.asdict(figure) for figure in figures]}
        write_json(os.path.join(output_dir, VERDICT_FILE), verdict)


class ExampleGateSpec(component_spec.ComponentSpec):
    """`limits`: JSON of `DataLimits`; all other rules are in the schema."""

    PARAMETERS = {
        "limits": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {
        "anomalies": component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies),
        "documents": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
    }
    OUTPUTS = {"verdict": component_spec.ChannelParameter(type=ExampleVerdict)}


class ExampleGate(base_component.BaseComponent):
    """`anomalies` (ExampleAnomalies), `documents` and `examples` (Examples) -> `verdict` (ExampleVerdict).

    Stages that train on the examples depend on it.
    """

    SPEC_CLASS = ExampleGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        anomalies: channel.BaseChannel,
        documents: channel.BaseChannel,
        examples: channel.BaseChannel,
        limits: DataLimits,
    ):
        spec = ExampleGateSpec(
            anomalies=anomalies,
            documents=documents,
            examples=examples,
            limits=json.dumps(dataclasses.asdict(limits), sort_keys=True),
            code=code_fingerprint(__name__),
            verdict=channel.Channel(type=ExampleVerdict),
        )
        super().__init__(spec=spec)
