"""Models with prescribed sums or answers, judged by TFX's Evaluator."""

import json

import tensorflow as tf
from tfx.components.evaluator.executor import Executor
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names
from tfx.utils import proto_utils

from components.evaluator import slices
from components.io.shards import write_shard
from pipeline.runners.run_steps import BEAM_PIPELINE_ARGS


def saved(told, folder):
    """Model artifact 7 of a module with `evaluate`."""
    artifact = standard_artifacts.Model()
    artifact.id, artifact.uri = 7, str(folder)
    tf.saved_model.save(told, f"{folder}/Format-Serving", signatures={"evaluate": told.evaluate})
    return artifact


def examples_of(splits, folder):
    """Examples artifact of the records of each split."""
    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(folder), encode_split_names(list(splits))
    for split, records in splits.items():
        write_shard(f"{folder}/Split-{split}/examples.tfrecord", records)
    return artifact


def judged(folder, config, examples, model, *baseline):
    """(blessed, folder of the evaluation) by an `eval_config`."""
    evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
    evaluation.uri, blessing.uri = f"{folder}/evaluation", f"{folder}/blessing"
    Executor(Executor.Context(beam_pipeline_args=list(BEAM_PIPELINE_ARGS))).Do(
        {"examples": [examples], "model": [model], "baseline_model": list(baseline)},
        {"evaluation": [evaluation], "blessing": [blessing]},
        {
            "eval_config": proto_utils.proto_to_json(config),
            "module_path": slices.__name__,
            "example_splits": json.dumps(None),
        },
    )
    assert blessing.get_int_custom_property("current_model_id") == 7
    return bool(blessing.get_int_custom_property("blessed")), evaluation.uri
