"""Origin of a pushed version: `assets.extra/lineage.json` inside it, which stays with the version.

Example:

    {"version": "1767323045", "pushed": "2026-01-02T03:04:05Z", "blessed": "2026-01-02T03:03:59Z",
     "pipeline": "bert-pretrain", "run": "2026-01-02T02:50:01.678901", "model": 41, "steps": 3000,
     "scores": {"mlm_perplexity": 46.2, "mlm_accuracy": 0.37, "nsp_accuracy": 0.79},
     "decontaminated": [{"name": "SST-2/dev.tsv", "sha256": "920e...", "unread": 0}], "language": "en",
     "licence": "CC BY-SA 4.0", "teacher": {"name": "large/serving/7", "sha256": "920e..."}}

`model` is the id of the Model artifact in the run directory's ML Metadata, from which all else can be found.
`decontaminated` are the evaluation sets that the corpus has no texts of (`corpus.decontaminate`), apart from `unread`
rows, which could not be read; `language` and `licence` are settings of the corpus; null if unknown.
`teacher` is what the model also learned from (`--teacher`); null without one.
"""

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.types import artifact_utils

from bert_keras.files import json_text
from bert_keras.saved_model.saved_model_files import EXTRA_FOLDER
from bert_keras.training.log import LOG_FILE
from components.evaluator.results import evaluated

LINEAGE_FILE = "lineage.json"
# Facts of the corpus, and the teacher.
CORPUS = ("decontaminated", "language", "licence", "teacher")


def write_lineage(
    directory: str,
    version: str,
    input_dict: dict,
    context: BaseExecutor.Context | None,
    corpus: Mapping[str, Any] | None = None,
) -> None:
    """Write the file to the folder of a version, from the inputs of ModelPush and the context of its execution."""
    inputs = {key: artifact_utils.get_single_instance(artifacts) for key, artifacts in input_dict.items()}
    blessed = inputs["model_blessing"].mlmd_artifact.create_time_since_epoch
    scores = evaluated(inputs["evaluation"].uri)
    with tf.io.gfile.GFile(os.path.join(inputs["model_run"].uri, LOG_FILE)) as log:
        steps = max((json.loads(line)["step"] for line in log), default=None)
    lineage: dict[str, Any] = {
        "version": version,
        "pushed": _iso(time.time()),
        "blessed": _iso(blessed / 1000) if blessed else None,
        "pipeline": context.pipeline_info.id if context and context.pipeline_info else None,
        "run": context.pipeline_run_id if context else None,
        "model": inputs["model"].id,
        "steps": steps,
        "scores": {name: value for name, value in scores.items() if name != "example_count"},
        **{name: (corpus or {}).get(name) for name in CORPUS},
    }
    extra = os.path.join(directory, EXTRA_FOLDER)
    tf.io.gfile.makedirs(extra)
    with tf.io.gfile.GFile(os.path.join(extra, LINEAGE_FILE), "w") as file:
        file.write(json_text(lineage, indent=2, sort_keys=True) + "\n")


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
