"""The gate: which metrics are computed, and the thresholds that bless or refuse a model."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow_model_analysis as tfma

from bert_keras.tasks.table import Task
from components.evaluator import metrics, task_scores
from components.evaluator.results import BASELINE, CANDIDATE, LABEL_FEATURE
from pipeline.config import GateSettings
from pipeline.finetune_recipes import TaskGate
from pipeline.objective_parts import BOUNDS, metric_names


def eval_config(gate: GateSettings, objective: str) -> tfma.EvalConfig:
    """What TFMA computes of a pre-trained model, and what it takes to be blessed.

    Args:
        gate: the thresholds.
        objective: what the model learned (`pipeline.objective_parts.PARTS`).
    """
    found = []
    for name in metric_names(objective):
        metric = tfma.MetricConfig(class_name=metrics.class_name(name), module=metrics.__name__)
        if name in BOUNDS:
            _judge(metric, _threshold(gate, BOUNDS[name], compared=name.endswith("perplexity")))
        found.append(metric)
    return _eval_config([*found, tfma.MetricConfig(class_name="ExampleCount")])


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


def task_eval_config(task: Task, gate: TaskGate) -> tfma.EvalConfig:
    """The same of a fine-tuned model: the first of its task's scores is judged, the others are shown.

    Of classifiers so are the scores of the rows of each label.
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
    slices = [tfma.SlicingSpec(feature_keys=[LABEL_FEATURE])] if task.kind == "classification" else []
    return _eval_config([metric, tfma.MetricConfig(class_name="ExampleCount")], slices)


def _judge(metric: tfma.MetricConfig, threshold: tfma.MetricThreshold) -> None:
    """A threshold for all examples together; `metric.threshold` would be one for every slice too."""
    metric.per_slice_thresholds.add(slicing_specs=[tfma.SlicingSpec()], threshold=threshold)


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
