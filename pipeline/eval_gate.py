"""The gate: which metrics are computed, and the thresholds that bless or refuse a model."""

from __future__ import annotations

import tensorflow_model_analysis as tfma

from bert_keras.tasks.table import Task
from components.evaluator import metrics, task_scores
from pipeline.config import GateSettings
from pipeline.finetune_recipes import TaskGate

CANDIDATE, BASELINE = "candidate", "baseline"


def eval_config(gate: GateSettings) -> tfma.EvalConfig:
    """What TFMA computes, and what it takes to be blessed."""

    def metric(cls: type[tfma.metrics.Metric], **threshold) -> tfma.MetricConfig:
        return tfma.MetricConfig(
            class_name=cls.__name__, module=metrics.__name__, threshold=tfma.MetricThreshold(**threshold)
        )

    return _eval_config(
        [
            metric(
                metrics.MlmPerplexity,
                value_threshold=tfma.GenericValueThreshold(upper_bound={"value": gate.max_mlm_perplexity}),
                change_threshold=tfma.GenericChangeThreshold(
                    direction=tfma.MetricDirection.LOWER_IS_BETTER,
                    relative={"value": gate.max_mlm_perplexity_increase},
                ),
            ),
            metric(
                metrics.MlmAccuracy,
                value_threshold=tfma.GenericValueThreshold(lower_bound={"value": gate.min_mlm_accuracy}),
            ),
            metric(
                metrics.NspAccuracy,
                value_threshold=tfma.GenericValueThreshold(lower_bound={"value": gate.min_nsp_accuracy}),
            ),
            tfma.MetricConfig(class_name="ExampleCount"),
        ]
    )


def task_eval_config(task: Task, gate: TaskGate) -> tfma.EvalConfig:
    """The same of a fine-tuned model: the first of its task's scores is judged, the others are shown."""
    threshold = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": gate.min_score}),
        change_threshold=tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.HIGHER_IS_BETTER, absolute={"value": -gate.max_score_decrease}
        ),
    )
    name = task_scores.class_name(task.name)
    metric = tfma.MetricConfig(class_name=name, module=task_scores.__name__, threshold=threshold)
    return _eval_config([metric, tfma.MetricConfig(class_name="ExampleCount")])


def _eval_config(metrics: list[tfma.MetricConfig]) -> tfma.EvalConfig:
    """Metrics of the candidate's and the baseline's `evaluate` signature over all examples."""
    model = {"model_type": "tf_generic", "signature_name": "evaluate"}
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(name=CANDIDATE, **model),
            tfma.ModelSpec(name=BASELINE, is_baseline=True, **model),
        ],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )
