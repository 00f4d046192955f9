"""ExampleGate: anomalies -> a verdict, or a stop. TFX's ExampleValidator writes anomalies and lets the run go on."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, channel, component_spec, standard_artifacts

from bert_keras.errors import StageError
from components.artifacts import ExampleVerdict
from components.shards import write_json

VERDICT_FILE = "verdict.json"


class Executor(base_executor.BaseExecutor):
    """Reads the anomalies of every split; raises `StageError`, naming feature and rule, if there are any."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        anomalies = artifact_utils.get_single_instance(input_dict["anomalies"])
        splits = artifact_utils.decode_split_names(anomalies.split_names)
        found = []
        for split in splits:
            (path,) = tf.io.gfile.glob(os.path.join(anomalies.uri, f"Split-{split}", "*"))
            with tf.io.gfile.GFile(path, "rb") as file:
                result = anomalies_pb2.Anomalies.FromString(file.read())
            if result.HasField("dataset_anomaly_info"):
                found.append(f"{split}: {result.dataset_anomaly_info.description}")
            found += [f"{split}: {name}: {info.description}" for name, info in sorted(result.anomaly_info.items())]
        if found:
            raise StageError("the examples break their schema: " + "; ".join(found))
        output_dir = artifact_utils.get_single_uri(output_dict["verdict"])
        tf.io.gfile.makedirs(output_dir)
        write_json(os.path.join(output_dir, VERDICT_FILE), {"anomalies": 0, "splits": splits})


class ExampleGateSpec(component_spec.ComponentSpec):
    """No properties: the schema holds the rules."""

    PARAMETERS: dict = {}
    INPUTS = {"anomalies": component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies)}
    OUTPUTS = {"verdict": component_spec.ChannelParameter(type=ExampleVerdict)}


class ExampleGate(base_component.BaseComponent):
    """`anomalies` (ExampleAnomalies) -> `verdict` (ExampleVerdict); what trains on the examples comes after it."""

    SPEC_CLASS = ExampleGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, anomalies: channel.BaseChannel):
        super().__init__(spec=ExampleGateSpec(anomalies=anomalies, verdict=channel.Channel(type=ExampleVerdict)))
