"""A run's results as typed artifacts of Kubeflow Pipelines, whose pages then show the report and the metrics.

A step is given an ExecutorInput, which names a URI for each artifact and a file for their metadata. The step leaves a
file at the local place of the URI; KFP's launcher uploads it, and records the metadata. The data itself stays on the
volume: KFP keeps its path.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

from components.io.shards import write_json
from pipeline.runs.lineage import Run
from pipeline.runs.run_dir import REPORT_FILE, serving_dir

# Names and KFP's types of the artifacts of the last step.
REPORT, METRICS, MODEL, EXAMPLES = "report", "metrics", "model", "examples"
ARTIFACT_TYPES = {REPORT: "HTML", METRICS: "Metrics", MODEL: "Model", EXAMPLES: "Dataset"}


def write_artifacts(executor_input: str, run: Run, summary: Mapping[str, Any], run_dir: str) -> None:
    """Write the artifacts of a finished run, and the file that describes them, as KFP's JSON message asks."""
    outputs, described = json.loads(executor_input)["outputs"], {}
    for name, metadata in _described(run, summary, run_dir).items():
        path = _local_path(outputs["artifacts"][name]["artifacts"][0]["uri"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if name == REPORT and os.path.exists(metadata["path"]):
            shutil.copyfile(metadata["path"], path)
        else:
            write_json(path, metadata)
        described[name] = {"artifacts": [{"metadata": metadata}]}
    os.makedirs(os.path.dirname(outputs["outputFile"]), exist_ok=True)
    write_json(outputs["outputFile"], {"artifacts": described})


def _described(run: Run, summary: Mapping[str, Any], run_dir: str) -> dict[str, dict[str, Any]]:
    """The metadata of each artifact; KFP refuses metrics that are no numbers."""
    outputs = [artifact for stage in run.stages.values() for key in stage.outputs for artifact in stage.outputs[key]]
    examples = next((artifact.uri for artifact in outputs if artifact.type == "Examples"), None)
    numbers = {name: value for name, value in summary.items() if type(value) in (int, float) and math.isfinite(value)}
    version = summary.get("pushed_version")
    return {
        REPORT: {"path": os.path.join(run_dir, REPORT_FILE)},
        METRICS: numbers,
        MODEL: {"version": version, "path": os.path.join(serving_dir(run_dir), version)} if version else {},
        EXAMPLES: {"path": examples} if examples else {},
    }


def _local_path(uri: str) -> str:
    """Where KFP's launcher looks for the content of a URI: /minio/BUCKET/..., /s3/BUCKET/..., /gcs/BUCKET/..."""
    return re.sub(r"^(\w+)://", lambda scheme: f"/{'gcs' if scheme[1] == 'gs' else scheme[1]}/", uri)
