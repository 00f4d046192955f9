"""Sentences for the missed thresholds in `summary.json` (`components.evaluator.gate_failures`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from components.evaluator.gate_failures import CHANCE, CHANGE, EMPTY, FORGETTING, GateFailure


def failures_of(summary: Mapping[str, Any]) -> list[GateFailure]:
    """The records in a summary's `gate_failures`; a value that is null there is NaN, unless its kind has none."""
    failures = []
    for record in summary["gate_failures"]:
        known: dict[str, Any] = {"slice": tuple(record["slice"]) if record["slice"] else None}
        for name in ("value", "standard_errors") if record["kind"] == CHANCE else ("value",):
            known[name] = math.nan if record[name] is None and record["kind"] != EMPTY else record[name]
        failures.append(GateFailure(**{**record, **known}))
    return failures


def reasons(summary: Mapping[str, Any]) -> list[str]:
    """Every reason for a refusal: missed thresholds, and problems found by the ServingValidator."""
    problems = [f"serving: {problem}" for problem in summary["serving"]["problems"]]
    return [*map(sentence, failures_of(summary)), *problems]


def sentence(failure: GateFailure) -> str:
    """Describe a missed threshold.

    >>> sentence(GateFailure("mlm_perplexity", "value", value=478.5, direction="at most", bound=100.0))
    'mlm_perplexity: 478.5 (threshold: at most 100)'
    """
    part = "" if failure.slice is None else " ".join(failure.slice)
    if failure.kind == EMPTY:
        return f"no held-out rows are in the slice {part}, which has a threshold"
    name = f"{failure.metric} of {part}" if part else failure.metric
    if failure.kind == CHANCE:
        return (
            f"{name}: {failure.value:.4g} is not better than chance, {failure.bound:.4g}, by two standard errors "
            f"({failure.standard_errors:+.1f}); gate.allow_chance=true would allow it"
        )
    if failure.kind == FORGETTING:
        return (
            f"reference corpus: perplexity per word {failure.value:.4g}, the initial model's is {failure.baseline:.4g} "
            f"(threshold: a change of {failure.direction} {failure.allowed_change:+.1%})"
        )
    if failure.kind == CHANGE:
        allowed = f"{failure.allowed_change:+.1%}" if failure.relative else f"{failure.allowed_change:+g}"
        return (
            f"{name}: {failure.value:.4g}, the baseline model's is {failure.baseline:.4g} "
            f"(threshold: a change of {failure.direction} {allowed})"
        )
    return f"{name}: {failure.value:.4g} (threshold: {failure.direction} {failure.bound:g})"
