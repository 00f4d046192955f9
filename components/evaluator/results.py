"""What the Evaluator measured, read from what it wrote."""

from __future__ import annotations

import json
import math

import tensorflow_model_analysis as tfma

# The names of the models that are compared.
CANDIDATE, BASELINE = "candidate", "baseline"
# The ends of a metric's 95 % confidence interval are metrics too: mlm_accuracy, mlm_accuracy_low, mlm_accuracy_high.
LOW, HIGH = "_low", "_high"
# By this feature of their rows fine-tuned classifiers are also judged a label at a time.
LABEL_FEATURE = "gold"


def evaluated(evaluation: str, model_name: str = CANDIDATE) -> dict[str, float]:
    """What the Evaluator measured, over all examples, by the names of its metrics.

    Args:
        evaluation: the folder of its `evaluation` artifact.
        model_name: of the candidate or of the baseline, if there was one.
    """
    return _metrics(_slices(evaluation, model_name)[()])


def intervals(evaluation: str) -> dict[str, list[float]]:
    """The 95 % confidence interval of each metric of the candidate that has one: [low, high]."""
    found = _slices(evaluation, CANDIDATE)[()]
    return {
        name: [found[name + LOW], found[name + HIGH]]
        for name in found
        if name + LOW in found and not math.isnan(found[name + LOW])
    }


def evaluated_by_label(evaluation: str) -> dict[str, dict[str, float]]:
    """What was measured of the candidate over the rows of each label; nothing of tasks without labels."""
    by_label = {}
    for key, found in _slices(evaluation, CANDIDATE).items():
        for feature, value in key:
            if feature == LABEL_FEATURE:
                by_label[str(json.loads(value))] = _metrics(found)
    return dict(sorted(by_label.items()))


def _metrics(found: dict[str, float]) -> dict[str, float]:
    """Without the ends of intervals, and how they differ from the baseline's."""
    ends = tuple(end + suffix for end in (LOW, HIGH) for suffix in ("", "_diff"))
    return {name: value for name, value in found.items() if not name.endswith(ends)}


def _slices(evaluation: str, model_name: str) -> dict[tuple, dict[str, float]]:
    """All metrics of a model by slice; () is the slice of all examples."""
    # Models have names only where there are two.
    results = (tfma.load_eval_result(evaluation, model_name=name) for name in (model_name, None))
    slices = next(result.slicing_metrics for result in results if result.slicing_metrics)
    # What is no number is a text in JSON.
    return {
        key: {name: float(value["doubleValue"]) for name, value in outputs[""][""].items() if "doubleValue" in value}
        for key, outputs in slices
    }
