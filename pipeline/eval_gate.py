"""The gate: which metrics are computed, and the thresholds that bless or refuse a model."""

from __future__ import annotations

import json
from collections.abc import Sequence

import tensorflow_model_analysis as tfma

from bert_keras.tasks.table import Task
from components.evaluator import metrics, task_scores
from components.evaluator.results import BASELINE, CANDIDATE
from components.evaluator.settings import (
    LABEL_FEATURE,
    LENGTH_FEATURE,
    SLICED_BY,
    SOURCE_FEATURE,
    SliceSettings,
    TaskSliceSettings,
)
from pipeline.config import GateSettings
from pipeline.finetune_recipes import TaskGate
from pipeline.objective_parts import BOUNDS, metric_names


def eval_config(gate: GateSettings, objective: str, slices: SliceSettings) -> tfma.EvalConfig:
    """What TFMA computes of a pre-trained model, and what it takes to be blessed.

    Args:
        gate: the thresholds.
        objective: what the model learned (`pipeline.objective_parts.PARTS`).
        slices: in which parts examples are measured, too.
    """
    found = []
    for name in metric_names(objective):
        metric = tfma.MetricConfig(class_name=metrics.class_name(name), module=metrics.__name__)
        if name in BOUNDS:
            _judge(metric, _threshold(gate, BOUNDS[name], compared=name.endswith("perplexity")))
        found.append(metric)
    return _eval_config([*found, tfma.MetricConfig(class_name="ExampleCount")], _of_lengths(slices))


def _threshold(gate: GateSettings, setting: str, *, compared: bool) -> tfma.MetricThreshold:
    """The bound that a setting is, and where the metric is compared, how much worse than the baseline's it may be."""
    bound = {"upper_bound" if setting.startswith("max_") else "lower_bound": {"value": getattr(gate, setting)}}
    threshold = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(**bound))
    if compared:
        change = tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.LOWER_IS_BETTER, relative={"value": gate.max_mlm_perplexity_increase}
        )
        threshold.change_threshold.CopyFrom(change)
    return threshold


def task_eval_config(task: Task, gate: TaskGate, slices: TaskSliceSettings) -> tfma.EvalConfig:
    """The same of a fine-tuned model: the first of its task's scores is judged, the others are shown.

    So are the scores of parts of the rows, unless the gate names one.
    """
    threshold = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": gate.min_score}),
        change_threshold=tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.HIGHER_IS_BETTER, absolute={"value": -gate.max_score_decrease}
        ),
    )
    name = task_scores.class_name(task.name)
    metric = tfma.MetricConfig(class_name=name, module=task_scores.__name__)
    _judge(metric, threshold)
    for by, of, least in gate.slice_bounds:
        bound = tfma.GenericValueThreshold(lower_bound={"value": least})
        _judge(metric, tfma.MetricThreshold(value_threshold=bound), _slice_of(by, of))
    specs = _of_lengths(slices)
    specs += [tfma.SlicingSpec(feature_keys=[LABEL_FEATURE])] * (slices.by_label and task.kind == "classification")
    specs += [tfma.SlicingSpec(feature_keys=[SOURCE_FEATURE])] * slices.by_source
    return _eval_config([metric, tfma.MetricConfig(class_name="ExampleCount")], specs)


def _of_lengths(slices: SliceSettings) -> list[tfma.SlicingSpec]:
    """A slice a part by name: it is these names that tell `components.evaluator.slices` what to look for."""
    return [_slice_of(SLICED_BY[LENGTH_FEATURE], group) for group in slices.length_groups]


def _slice_of(by: str, of: str) -> tfma.SlicingSpec:
    """The slice that `components.evaluator.results.slice_name` calls so."""
    (feature,) = (feature for feature, name in SLICED_BY.items() if name == by)
    return tfma.SlicingSpec(
        feature_values={feature: json.dumps(of, ensure_ascii=False) if feature == LABEL_FEATURE else of}
    )


def _judge(metric: tfma.MetricConfig, threshold: tfma.MetricThreshold, of: tfma.SlicingSpec | None = None) -> None:
    """A threshold for a slice, or for all examples together; `metric.threshold` would be one for every slice."""
    metric.per_slice_thresholds.add(slicing_specs=[of or tfma.SlicingSpec()], threshold=threshold)


def _eval_config(metrics: list[tfma.MetricConfig], slices: Sequence[tfma.SlicingSpec] = ()) -> tfma.EvalConfig:
    """Metrics of the candidate's and the baseline's `evaluate` signature over all examples, and over slices of them."""
    model = {"model_type": "tf_generic", "signature_name": "evaluate"}
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(name=CANDIDATE, **model),
            tfma.ModelSpec(name=BASELINE, is_baseline=True, **model),
        ],
        slicing_specs=[tfma.SlicingSpec(), *slices],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )
