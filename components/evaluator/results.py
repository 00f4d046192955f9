"""What the Evaluator measured, read from what it wrote."""

from __future__ import annotations

import json
import math
from typing import Any

import tensorflow_model_analysis as tfma

from components.evaluator.settings import LABEL_FEATURE, LENGTH_FEATURE, SLICED_BY

# The names of the models that are compared.
CANDIDATE, BASELINE = "candidate", "baseline"
# The ends of a metric's 95 % confidence interval are metrics too: mlm_accuracy, mlm_accuracy_low, mlm_accuracy_high.
LOW, HIGH = "_low", "_high"


def evaluated(evaluation: str, model_name: str = CANDIDATE) -> dict[str, float]:
    """What the Evaluator measured, over all examples, by the names of its metrics.

    Args:
        evaluation: the folder of its `evaluation` artifact.
        model_name: of the candidate or of the baseline, if there was one.
    """
    return _metrics(_slices(evaluation, model_name)[()])


def intervals(evaluation: str) -> dict[str, list[float]]:
    """The 95 % confidence interval of each metric of the candidate that has one: [low, high]."""
    return _intervals(_slices(evaluation, CANDIDATE)[()])


def evaluated_by_slice(evaluation: str) -> list[dict[str, Any]]:
    """What was measured of the candidate over parts of the examples, in order: by label, by length, by source.

    Returns: of each part `by` (a value of SLICED_BY), `of` (a label, "33 to 64", a source), `metrics`, among them its
        `example_count`, and `intervals` as above. A part without examples is not there.
    """
    parts = [
        {"by": by, "of": of, "metrics": _metrics(found), "intervals": _intervals(found)}
        for key, found in _slices(evaluation, CANDIDATE).items()
        for by, of in map(slice_name, key)
    ]
    return sorted(parts, key=lambda part: (part["by"], _order(part)))


def slice_name(key: tuple[str, Any]) -> tuple[str, str]:
    """By what a slice is one, and of what it is, from a feature and its value: ("gold", '"1"') is ("label", "1")."""
    feature, value = key
    return SLICED_BY[feature], str(json.loads(value) if feature == LABEL_FEATURE else value)


def _order(part: dict[str, Any]) -> tuple[bool, int, str]:
    """Lengths as numbers: up to 32, 33 to 64, over 64."""
    if part["by"] != SLICED_BY[LENGTH_FEATURE]:
        return False, 0, part["of"]
    return part["of"].startswith("over"), int(part["of"].rpartition(" ")[2]), ""


def _intervals(found: dict[str, float]) -> dict[str, list[float]]:
    return {
        name: [found[name + LOW], found[name + HIGH]]
        for name in found
        if name + LOW in found and not math.isnan(found[name + LOW])
    }


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
