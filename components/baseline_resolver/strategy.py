"""Resolver strategy: the latest blessed model before the candidate that is comparable with it."""

import dataclasses
import posixpath

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tfx.components.evaluator.constants import ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY as MODEL_ID
from tfx.dsl.components.common import resolver
from tfx.types import artifact
from tfx.utils import path_utils

from bert_keras.data.example_format import ExampleSpec
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSpec


class LatestComparableStrategy(resolver.ResolverStrategy):
    """Resolves `candidate`, `model`, `model_blessing` and `infra_blessing` to at most one `model`.

    Without a comparable blessed model it is the optional `initial` one, from which the candidate was trained.

    In a rerun, TFX's LatestBlessedModelStrategy would return the model under evaluation, so that the gate and the push
    run again; this strategy returns the same baseline as the first time. Perplexities over different vocabularies or of
    different objectives are different quantities, and a model cannot read examples of another layout or another task:
    such models are not a baseline, and only the value thresholds apply. Nor is a model that was trained with another
    split, so that it may have learnt what is held out now (the initial one may, for the candidate began with it), or
    that the ServingValidator refused, which is never pushed. Fine-tuned models take raw text, so models for the same
    task and labels are comparable whatever their vocabulary and length.
    """

    def resolve_artifacts(self, store, input_dict: dict[str, list[artifact.Artifact]]):
        (candidate,) = input_dict["candidate"]
        served = input_dict.get("infra_blessing", [])
        blessed = _models(input_dict["model_blessing"], 1) - (_models(served, 0) - _models(served, 1))
        earlier = [model for model in input_dict["model"] if model.id in blessed and model.id < candidate.id]
        wanted = _format(candidate)
        comparable = (m for m in sorted(earlier, key=lambda m: m.id, reverse=True) if _format(m) == wanted)
        initial = (model for model in input_dict.get("initial", []) if _format(model) == wanted)
        baseline = next(comparable, None) or next(initial, None)
        return {**{key: [] for key in input_dict}, "model": [baseline] if baseline else []}


def _models(blessings: list[artifact.Artifact], blessed: int) -> set[int]:
    return {
        blessing.get_int_custom_property(MODEL_ID)
        for blessing in blessings
        if blessing.get_int_custom_property("blessed") == blessed
    }


def _format(model: artifact.Artifact) -> tuple | None:
    """Key that comparable models share; None if the files of the model are gone."""
    directory = path_utils.serving_model_path(model.uri)
    if not tf.io.gfile.exists(posixpath.join(directory, "saved_model.pb")):
        return None
    if tf.io.gfile.exists(posixpath.join(directory, TASK_SPEC_FILE)):
        rows = TaskSpec.load(directory)
        return rows.task, rows.held_out
    spec = ExampleSpec.load(directory)
    layout = dataclasses.replace(spec.layout, masking="static")  # as in all held-out examples
    with tf.io.gfile.GFile(posixpath.join(directory, "saved_model.pb"), "rb") as file:
        graphs = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    # What is measured differs between model families.
    measured = frozenset(name for graph in graphs for name in graph.signature_def["evaluate"].outputs)
    return layout, spec.vocabulary_sha256, spec.eval_fraction, measured
