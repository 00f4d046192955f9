"""The gate's decision in words and rows, out of `summary.json` and the baseline's metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pipeline.objective_parts import BOUNDS, PARTS

VALUE, CHANGE = "value", "change"


@dataclasses.dataclass(frozen=True)
class GateRow:
    """One threshold.

    Attributes:
        name: of the metric.
        metric: its name for people.
        kind: `VALUE`, or `CHANGE` against the last blessed model.
        measured: the figure that was judged.
        wanted: the threshold.
        passed: None where there was nothing to judge.
        reason: why it failed, as a clause; shown only then.
    """

    name: str
    metric: str
    kind: str
    measured: str
    wanted: str
    passed: bool | None
    reason: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the page opens with; `good` where the model is blessed and pushed."""

    good: bool
    headline: str
    reasons: list[str]
    serving: str


def gate_rows(summary: Mapping[str, Any], baseline: Mapping[str, float] | None) -> list[GateRow]:
    """Every threshold of the recipe against what was measured. TFMA decided; nothing is decided here again.

    Args:
        summary: of `summary.json`; its `gate_failures` begin "METRIC: value" or "METRIC: change".
        baseline: metrics of the last comparable blessed model on the same examples; None if there was none.
    """
    gate, failed = summary["recipe"]["gate"], failed_thresholds(summary)
    rows = []
    for part in PARTS[summary["objective"]]:
        for figure in part.metrics:
            name, metric = f"{part.key}_{figure}", f"{part.title} {figure}"
            if name in BOUNDS:
                rows.append(_value_row(name, metric, summary[name], BOUNDS[name], gate, failed))
                if figure == "perplexity":
                    rows.append(_change_row(name, metric, summary[name], gate, baseline, failed))
    return rows


def failed_thresholds(summary: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Names of metrics and kinds of the thresholds that were missed."""
    return set(map(_failed, summary["gate_failures"]))


def verdict(summary: Mapping[str, Any], rows: list[GateRow]) -> Verdict:
    """The decision, why, and what is served now."""
    pushed, served = summary["pushed_version"], summary["served_version"]
    if not summary["blessed"]:
        headline = "Not blessed, not pushed"
    elif pushed:
        headline = f"Blessed and pushed as version {pushed}"
    else:
        headline = "Blessed, but not pushed"
    if served is None:
        serving = "Nothing is served: no model has been pushed yet."
    elif served == pushed:
        serving = f"Being served: version {served}, the newest in serving/."
    elif pushed:
        serving = f"Being served: version {served}, which is newer than {pushed}."
    else:
        serving = f"Being served: still version {served}, the newest in serving/."
    return Verdict(bool(summary["blessed"] and pushed), headline, _reasons(summary, rows), serving)


def _reasons(summary: Mapping[str, Any], rows: list[GateRow]) -> list[str]:
    reasons = [row.reason for row in rows if row.passed is False]
    # A failure that no row shows (a threshold added to the gate, not to this page) is told as TFMA's text.
    known = {(row.name, row.kind) for row in rows}
    return reasons + [text for text in summary["gate_failures"] if _failed(text) not in known]


def _value_row(
    name: str, metric: str, value: float, setting: str, gate: Mapping[str, float], failed: set[tuple[str, str]]
) -> GateRow:
    share = metric.endswith("accuracy")
    measured = f"{value:.1%}" if share else f"{value:,.2f}"
    bound = _percent(gate[setting]) if share else f"{gate[setting]:,g}"
    wanted = f"at {'most' if setting.startswith('max_') else 'least'} {bound}"
    reason = f"{_within(metric)} is {measured}, but must be {wanted}"
    return GateRow(name, metric, VALUE, measured, wanted, (name, VALUE) not in failed, reason)


def _change_row(
    name: str,
    metric: str,
    perplexity: float,
    gate: Mapping[str, float],
    baseline: Mapping[str, float] | None,
    failed: set[tuple[str, str]],
) -> GateRow:
    increase = gate["max_mlm_perplexity_increase"]
    if increase > 0:
        wanted = f"may rise by at most {_percent(increase)}"
    else:
        wanted = f"must fall by at least {_percent(-increase)}" if increase < 0 else "must not rise"
    if baseline is None:
        return GateRow(name, metric, CHANGE, "no earlier comparable model", wanted, None, "")
    before = baseline[name]
    measured = f"{perplexity / before - 1:+.2%} from {before:,.2f}".replace("-", "\N{MINUS SIGN}")
    reason = f"{_within(metric)} changed by {measured}, the last blessed model's; it {wanted}"
    return GateRow(name, metric, CHANGE, measured, wanted, (name, CHANGE) not in failed, reason)


def _within(metric: str) -> str:
    """As it stands within a sentence."""
    return metric[0].lower() + metric[1:]


def _failed(text: str) -> tuple[str, str]:
    """mlm_perplexity: value 478.5 (...) -> ("mlm_perplexity", "value")"""
    name, _, rest = text.partition(": ")
    return name, rest.partition(" ")[0]


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
