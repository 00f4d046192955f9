"""The gate: which metrics are computed, and the thresholds that bless or refuse a model."""

from __future__ import annotations

import tensorflow_model_analysis as tfma

from components.evaluator import metrics
from pipeline.config import GateSettings

CANDIDATE, BASELINE = "candidate", "baseline"


def eval_config(gate: GateSettings) -> tfma.EvalConfig:
    """What TFMA computes, and what it takes to be blessed."""

    def metric(cls: type[tfma.metrics.Metric], **threshold) -> tfma.MetricConfig:
        return tfma.MetricConfig(
            class_name=cls.__name__, module=metrics.__name__, threshold=tfma.MetricThreshold(**threshold)
        )

    model = {"model_type": "tf_generic", "signature_name": "evaluate"}
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(name=CANDIDATE, **model),
            tfma.ModelSpec(name=BASELINE, is_baseline=True, **model),
        ],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=[
            tfma.MetricsSpec(
                metrics=[
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
        ],
    )
