"""Reads the metrics that the Evaluator wrote."""

import functools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow_model_analysis as tfma

from bert_keras.finetuning.artifact_files import TEACHER_FILE
from components.evaluator import minimal_pairs, word_perplexity
from components.evaluator.gate_failures import AT_LEAST, AT_MOST, CHANGE, EMPTY, FORGETTING, TEACHER, VALUE, GateFailure
from components.evaluator.gate_failures import CHANCE as AT_CHANCE
from components.evaluator.settings import LABEL_FEATURE, LENGTH_FEATURE, SLICED_BY
from components.io.shards import read_json

# The names of the models that are compared.
CANDIDATE, BASELINE = "candidate", "baseline"
# The ends of a metric's 95 % confidence interval are metrics too: mlm_accuracy, mlm_accuracy_low, mlm_accuracy_high.
LOW, HIGH = "_low", "_high"
# So are a judged metric's chance, and by how many standard errors it is above that (`components.evaluator.chance`).
CHANCE, OVER_CHANCE = "_chance", "_over_chance"


def evaluated(evaluation: str, model_name: str = CANDIDATE) -> dict[str, float]:
    """Metrics over all examples, by name, of the candidate, or of the baseline if there was one."""
    return _metrics(_slices(evaluation, model_name)[()])


def intervals(evaluation: str) -> dict[str, list[float]]:
    """95 % confidence intervals of the candidate's metrics that have one: [low, high]."""
    return _intervals(_slices(evaluation, CANDIDATE)[()])


def metric_keys(names: Sequence[str], model_name: str, output_name: str) -> list[tfma.metrics.MetricKey]:
    """TFMA's keys for the metrics of one computation."""
    # It looks up thresholds of MetricConfigs by unweighted keys, additional ones by keys that state no weighting.
    weighted = {name: None if name.endswith(OVER_CHANCE) else False for name in names}
    return [tfma.metrics.MetricKey(name, model_name, output_name, example_weighted=weighted[name]) for name in names]


def chances(evaluation: str) -> dict[str, list[float]]:
    """Chance for each judged metric, and the number of standard errors by which the candidate is above it."""
    metrics = _slices(evaluation, CANDIDATE)[()]
    judged = [name for name in metrics if name + OVER_CHANCE in metrics]
    return {name: [metrics[name + CHANCE], metrics[name + OVER_CHANCE]] for name in judged}


def evaluated_by_slice(evaluation: str) -> list[dict[str, Any]]:
    """Metrics of the candidate by slice, in order: by label, by length, by source; empty slices are missing.

    Each has `by` (a value of SLICED_BY), `of` (a label, "33 to 64", a source), `metrics` and `intervals`.
    """
    parts = [
        {"by": by, "of": value, "metrics": _metrics(metrics), "intervals": _intervals(metrics)}
        for key, metrics in _slices(evaluation, CANDIDATE).items()
        for by, value in map(slice_name, key)
    ]
    return sorted(parts, key=lambda part: (part["by"], _order(part)))


def gate_failures(evaluation: str) -> list[GateFailure]:
    """Each threshold that was missed."""
    result = tfma.load_validation_result(evaluation)
    failures = []
    for of_slice in result.metric_validations_per_slice:
        key = tfma.slicer.deserialize_slice_key(of_slice.slice_key)
        failures += [_failure(failure, key, evaluation) for failure in of_slice.failures]
    empty = [slice_name(key) for spec in result.missing_slices for key in spec.feature_values.items()]
    failures += [GateFailure(None, EMPTY, name) for name in empty]
    if (reference := word_figures(evaluation).get("reference")) and word_perplexity.forgot(reference):
        before, after, allowed = (reference[name] for name in ("initial_model", "model", "max_forgetting"))
        failures.append(GateFailure("word_perplexity", FORGETTING, None, after, AT_MOST, None, before, allowed, True))
    if (pairs := pair_figures(evaluation)) and minimal_pairs.missed(pairs):
        value, bound = pairs["overall"]["accuracy"], pairs["min_accuracy"]
        failures.append(GateFailure("minimal_pairs", VALUE, value=value, direction=AT_LEAST, bound=bound))
    if (teacher := teacher_figures(evaluation)) and below_teacher(teacher):
        metric, share = teacher["metric"], teacher["min_share"]
        before = teacher["scores"][metric]
        failures.append(GateFailure(metric, TEACHER, None, teacher["model"], AT_LEAST, share, baseline=before))
    return failures


def below_teacher(figures: Mapping[str, Any]) -> bool:
    """Return whether the model of `teacher.json` has a smaller share of the teacher's score than it must have."""
    share = figures["min_share"]
    return share is not None and not (figures["model"] or 0.0) >= share * figures["scores"][figures["metric"]]


def _content(file: str, evaluation: str) -> dict[str, Any]:
    path = os.path.join(evaluation, file)
    return read_json(path) if os.path.exists(path) else {}


# The contents of `teacher.json`, `minimal_pairs.json` and `word_perplexity.json` in the folder of an evaluation; {}
# without a teacher, pairs, or an initial model.
teacher_figures = functools.partial(_content, TEACHER_FILE)
pair_figures = functools.partial(_content, minimal_pairs.FILE)
word_figures = functools.partial(_content, word_perplexity.FILE)


def _failure(failure, key: tuple, evaluation: str) -> GateFailure:
    slice_of = next(map(slice_name, key), None)
    metric, measured = failure.metric_key.name, failure.metric_value.double_value.value
    if metric.endswith(OVER_CHANCE):
        metric = metric.removesuffix(OVER_CHANCE)
        chance, over = chances(evaluation)[metric]
        value = evaluated(evaluation)[metric]
        return GateFailure(metric, AT_CHANCE, slice_of, value, bound=chance, standard_errors=over)
    if failure.metric_key.is_diff:
        threshold = failure.metric_threshold.change_threshold
        lower = threshold.direction == tfma.MetricDirection.LOWER_IS_BETTER
        relative = threshold.HasField("relative")
        return GateFailure(
            metric,
            CHANGE,
            slice_of,
            value=_slices(evaluation, CANDIDATE)[key][metric],
            direction=AT_MOST if lower else AT_LEAST,
            baseline=_slices(evaluation, BASELINE)[key][metric],
            allowed_change=(threshold.relative if relative else threshold.absolute).value,
            relative=relative,
        )
    bounds = failure.metric_threshold.value_threshold
    least = bounds.HasField("lower_bound")
    bound = (bounds.lower_bound if least else bounds.upper_bound).value
    return GateFailure(metric, VALUE, slice_of, measured, AT_LEAST if least else AT_MOST, bound)


def slice_name(key: tuple[str, Any]) -> tuple[str, str]:
    """The (slice type, slice value) of a TFMA slice key: ("gold", '"1"') is ("label", "1")."""
    feature, value = key
    return SLICED_BY[feature], str(json.loads(value) if feature == LABEL_FEATURE else value)


def _order(part: dict[str, Any]) -> tuple[bool, int, str]:
    """Sort key with lengths as numbers: up to 32, 33 to 64, over 64."""
    if part["by"] != SLICED_BY[LENGTH_FEATURE]:
        return False, 0, part["of"]
    return part["of"].startswith("over"), int(part["of"].rpartition(" ")[2]), ""


def _intervals(metrics: dict[str, float]) -> dict[str, list[float]]:
    return {
        name: [metrics[name + LOW], metrics[name + HIGH]]
        for name in metrics
        if name + LOW in metrics and not math.isnan(metrics[name + LOW])
    }


def _metrics(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics without interval bounds, chance, and differences from the baseline."""
    ends = (LOW, HIGH, CHANCE, OVER_CHANCE, "_diff")
    return {name: value for name, value in metrics.items() if not name.endswith(ends)}


def _slices(evaluation: str, model_name: str) -> dict[tuple, dict[str, float]]:
    """All metrics of a model by slice; () is the slice of all examples."""
    # Models have names only where there are two.
    results = (tfma.load_eval_result(evaluation, model_name=name) for name in (model_name, None))
    slices = next(result.slicing_metrics for result in results if result.slicing_metrics)
    # NaN and infinity are strings in TFMA's JSON.
    return {
        key: {name: float(value["doubleValue"]) for name, value in outputs[""][""].items() if "doubleValue" in value}
        for key, outputs in slices
    }
