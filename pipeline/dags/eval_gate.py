"""The gate: metrics, and the thresholds that bless or refuse a model."""

import json
from collections.abc import Sequence

import tensorflow_model_analysis as tfma

from bert_keras.objectives.table import bounds_of
from bert_keras.tasks.table import Task
from components.evaluator import metrics, task_scores
from components.evaluator.chance import STANDARD_ERRORS
from components.evaluator.results import BASELINE, CANDIDATE, OVER_CHANCE
from components.evaluator.settings import (
    LABEL_FEATURE,
    LENGTH_FEATURE,
    SLICED_BY,
    SOURCE_FEATURE,
    SliceSettings,
)
from pipeline.recipes.finetuning import TaskGate
from pipeline.recipes.settings import GateSettings

_BY_SOURCE = tfma.SlicingSpec(feature_keys=[SOURCE_FEATURE])


def eval_config(gate: GateSettings, objective: str, slices: SliceSettings) -> tfma.EvalConfig:
    """TFMA's configuration for a pre-trained model of an objective (`bert_keras.objectives.table.PARTS`)."""
    configs = []
    bounds = bounds_of(objective)
    for name, setting in bounds.items():
        metric = tfma.MetricConfig(class_name=metrics.class_name(name), module=metrics.__name__)
        if setting is not None:
            compared = name.endswith("perplexity")
            bound = {"upper_bound" if setting.startswith("max_") else "lower_bound": {"value": getattr(gate, setting)}}
            threshold = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(**bound))
            if compared:  # with the baseline
                threshold.change_threshold.CopyFrom(_change(gate.max_mlm_perplexity_increase))
            _add_threshold(metric, threshold)
            if compared and gate.max_source_perplexity_increase is not None:
                change = tfma.MetricThreshold(change_threshold=_change(gate.max_source_perplexity_increase))
                _add_threshold(metric, change, _BY_SOURCE)
        configs.append(metric)
    gated = [] if gate.allow_chance else [name for name, setting in bounds.items() if setting is not None]
    return _eval_config([*configs, tfma.MetricConfig(class_name="ExampleCount")], gated, _slices(slices))


def _change(max_increase: float) -> tfma.GenericChangeThreshold:
    return tfma.GenericChangeThreshold(direction=tfma.MetricDirection.LOWER_IS_BETTER, relative={"value": max_increase})


def task_eval_config(task: Task, gate: TaskGate, slices: SliceSettings) -> tfma.EvalConfig:
    """TFMA's configuration for a fine-tuned model: the task's first score is gated, the others are only reported.

    Scores of slices are gated only where `gate.min_slice_scores` names them.
    """
    threshold = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": gate.min_score}),
        change_threshold=tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.HIGHER_IS_BETTER, absolute={"value": -gate.max_score_decrease}
        ),
    )
    metric = tfma.MetricConfig(class_name=task_scores.class_name(task.name), module=task_scores.__name__)
    _add_threshold(metric, threshold)
    for by, value, min_score in gate.slice_bounds:
        bound = tfma.GenericValueThreshold(lower_bound={"value": min_score})
        _add_threshold(metric, tfma.MetricThreshold(value_threshold=bound), _slicing_spec(by, value))
    specs = _slices(slices)
    specs += [tfma.SlicingSpec(feature_keys=[LABEL_FEATURE])] * (task.kind == "classification")
    gated = [] if gate.allow_chance else [task.metrics[0]]
    return _eval_config([metric, tfma.MetricConfig(class_name="ExampleCount")], gated, specs)


def _slices(slices: SliceSettings) -> list[tfma.SlicingSpec]:
    """One slice per length group, whose name `components.evaluator.slices` reads, and one per source."""
    lengths = [_slicing_spec(SLICED_BY[LENGTH_FEATURE], group) for group in slices.length_groups]
    return lengths + [_BY_SOURCE] * slices.by_source


def _slicing_spec(by: str, value: str) -> tfma.SlicingSpec:
    """The slice with the name (by, value) of `components.evaluator.results.slice_name`."""
    (feature,) = (feature for feature, name in SLICED_BY.items() if name == by)
    return tfma.SlicingSpec(
        feature_values={feature: json.dumps(value, ensure_ascii=False) if feature == LABEL_FEATURE else value}
    )


def _add_threshold(
    metric: tfma.MetricConfig, threshold: tfma.MetricThreshold, spec: tfma.SlicingSpec | None = None
) -> None:
    """Add a threshold for a slice, or for all examples together; `metric.threshold` would apply to every slice."""
    metric.per_slice_thresholds.add(slicing_specs=[spec or tfma.SlicingSpec()], threshold=threshold)


def _eval_config(
    metrics: list[tfma.MetricConfig], above_chance: Sequence[str], slices: Sequence[tfma.SlicingSpec]
) -> tfma.EvalConfig:
    """Metrics over all examples and over slices; those in `above_chance` must exceed the floor of chance over all."""
    model = {"model_type": "tf_generic", "signature_name": "evaluate"}
    floor = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": STANDARD_ERRORS}))
    spec = tfma.MetricsSpec(metrics=metrics)
    for name in above_chance:
        thresholds = spec.per_slice_thresholds[name + OVER_CHANCE].thresholds
        thresholds.add(slicing_specs=[tfma.SlicingSpec()], threshold=floor)
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(name=CANDIDATE, **model),
            tfma.ModelSpec(name=BASELINE, is_baseline=True, **model),
        ],
        slicing_specs=[tfma.SlicingSpec(), *slices],
        metrics_specs=[spec],
    )
