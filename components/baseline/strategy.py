"""The Resolver's strategy: the latest blessed model that came before the candidate and can be compared with it."""

from __future__ import annotations

import dataclasses
import posixpath

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tfx.dsl.components.common import resolver
from tfx.types import artifact
from tfx.utils import path_utils

from bert_keras.features import ExampleSpec
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSpec


class LatestComparableStrategy(resolver.ResolverStrategy):
    """Inputs `candidate`, `model` and `model_blessing`; gives `model`, one or none.

    TFX's LatestBlessedModelStrategy would give a rerun the model that it is about to judge, so that the gate and the
    push run again; this one gives it what it was given the first time. And perplexities over different vocabularies, or
    of other objectives, are different quantities, as a model cannot read examples of another layout, nor answer another
    task's rows: such models are no baseline, and the value thresholds alone decide. Fine-tuned models take raw text, so
    those of one task and its labels can be compared whatever vocabulary and length they have.
    """

    def resolve_artifacts(self, store, input_dict: dict[str, list[artifact.Artifact]]):
        (candidate,) = input_dict["candidate"]
        blessed = {
            blessing.get_int_custom_property("current_model_id")
            for blessing in input_dict["model_blessing"]
            if blessing.get_int_custom_property("blessed")
        }
        earlier = [model for model in input_dict["model"] if model.id in blessed and model.id < candidate.id]
        wanted = _format(candidate)
        comparable = (m for m in sorted(earlier, key=lambda m: m.id, reverse=True) if _format(m) == wanted)
        return {"candidate": [], "model_blessing": [], "model": [m for m in [next(comparable, None)] if m]}


def _format(model: artifact.Artifact) -> tuple | None:
    """What two models must share to be measured on the same examples; None if the model's files are gone."""
    directory = path_utils.serving_model_path(model.uri)
    if not tf.io.gfile.exists(posixpath.join(directory, "saved_model.pb")):
        return None
    if tf.io.gfile.exists(posixpath.join(directory, TASK_SPEC_FILE)):
        return (TaskSpec.load(directory).task,)
    spec = ExampleSpec.load(directory)
    layout = dataclasses.replace(spec.layout, masking="static")  # held-out examples always are
    return layout, spec.vocabulary_sha256, _measured(directory)


def _measured(directory: str) -> frozenset[str]:
    """What the `evaluate` signature gives: models of other families learn other things from the same examples."""
    with tf.io.gfile.GFile(posixpath.join(directory, "saved_model.pb"), "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    return frozenset(name for graph in model.meta_graphs for name in graph.signature_def["evaluate"].outputs)
