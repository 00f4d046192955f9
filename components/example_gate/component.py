"""ExampleGate: writes a verdict, or stops the run, given anomalies and figures of the data.

TFX's ExampleValidator writes anomalies without stopping the run; the figures are counted while the data are made.
"""

import dataclasses
import os
from typing import Any

import tensorflow as tf
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_artifacts

from bert_keras.data.example_format import EXAMPLE_SPEC_FILE
from bert_keras.errors import StageError
from bert_keras.files import files_in
from components.artifacts import ExampleVerdict
from components.corpus_gen.record.card import COUNTS_FILE
from components.example_gate.limits import DataLimits, check_limits
from components.io.shards import read_json, write_json
from components.stage import Stage

VERDICT_FILE = "verdict.json"


class Executor(base_executor.BaseExecutor):
    """Reads the anomalies of every split and the counts of the data.

    StageError: there are anomalies, or figures outside their limits; lists all: feature and rule, or figure, limit and
    remedy.
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


class ExampleGate(
    Stage,
    executor=Executor,
    inputs={
        "anomalies": standard_artifacts.ExampleAnomalies,
        "documents": standard_artifacts.Examples,
        "examples": standard_artifacts.Examples,
    },
    parameters={"limits": str, "code": str},
    outputs={"verdict": ExampleVerdict},
):
    """Gives a `verdict` on `examples`; `limits` are `DataLimits`, all other rules are in the schema.

    Stages that train on the examples depend on it.
    """
