"""The gate's decision as sentences and rows, from `summary.json` and the baseline's metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_keras.objectives.table import PARTS, perplexity_text
from components.evaluator.gate_failures import CHANCE, CHANGE, FORGETTING, VALUE
from pipeline.summaries.advice import advice
from pipeline.summaries.gate_failures import failures_of, reasons

# Metric, slice and kind.
Threshold = tuple[str | None, tuple[str, str] | None, str]


@dataclasses.dataclass(frozen=True)
class GateRow:
    """A threshold with its measurement.

    Attributes:
        kind: `VALUE`, which includes chance, `CHANGE` against the last blessed model, or `FORGETTING`.
        passed: None if there was nothing to check.
    """

    metric: str
    kind: str
    measured: str
    wanted: str
    passed: bool | None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Headline of the page; `good` if the model is blessed and pushed."""

    good: bool
    headline: str
    reasons: list[str]
    advice: list[str]
    serving: str


def gate_rows(summary: Mapping[str, Any], baseline: Mapping[str, float] | None) -> list[GateRow]:
    """Every threshold of the recipe with its measurement; the decisions are TFMA's."""
    gate, failed = summary["recipe"]["gate"], failed_thresholds(summary)
    rows = []
    for part in PARTS[summary["objective"]]:
        for figure, setting in part.metrics.items():
            name, metric = f"{part.key}_{figure}", f"{part.title} {figure}"
            if setting is not None:
                rows.append(_value_row(name, metric, summary, setting, failed))
                if figure == "perplexity":
                    rows.append(_change_row(name, metric, summary[name], gate, baseline, failed))
    return rows + _word_rows(summary.get("word_perplexity", {}), failed) + _pair_rows(summary, failed)


def failed_thresholds(summary: Mapping[str, Any]) -> set[Threshold]:
    """The missed thresholds."""
    return {(failure.metric, failure.slice, failure.kind) for failure in failures_of(summary)}


def verdict(summary: Mapping[str, Any]) -> Verdict:
    """The decision, its reasons, and the served version."""
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
    lines = [] if summary["blessed"] else advice(summary)
    return Verdict(bool(summary["blessed"] and pushed), headline, reasons(summary), lines, serving)


def passed_value(name: str, failed: set[Threshold]) -> bool:
    """Whether the metric reached both its bound and the floor of chance."""
    return not failed & {(name, None, VALUE), (name, None, CHANCE)}


def above_chance(chance: str, summary: Mapping[str, Any], better: str = "above") -> str:
    """The floor of chance, to be appended to a bound; empty if it is lifted."""
    lifted = summary["recipe"]["gate"]["allow_chance"]
    return "" if lifted else f", and by two standard errors {better} chance, {chance}"


def _value_row(name: str, metric: str, summary: Mapping[str, Any], setting: str, failed: set[Threshold]) -> GateRow:
    share, limit = metric.endswith("accuracy"), summary["recipe"]["gate"][setting]
    measured, chance = (
        f"{value:.1%}" if share else perplexity_text(value, 2) for value in (summary[name], summary["chances"][name][0])
    )
    bound = _percent(limit) if share else f"{limit:,g}"
    wanted = f"at {'most' if setting.startswith('max_') else 'least'} {bound}"
    wanted += above_chance(chance, summary, "above" if share else "below")
    return GateRow(metric, VALUE, measured, wanted, passed_value(name, failed))


def _change_row(
    name: str,
    metric: str,
    perplexity: float,
    gate: Mapping[str, float],
    baseline: Mapping[str, float] | None,
    failed: set[Threshold],
) -> GateRow:
    wanted = _allowed(gate["max_mlm_perplexity_increase"])
    if baseline is None:
        return GateRow(metric, CHANGE, "no earlier comparable model", wanted, None)
    return GateRow(metric, CHANGE, _change(perplexity, baseline[name]), wanted, (name, None, CHANGE) not in failed)


def _word_rows(figures: Mapping[str, Mapping[str, Any]], failed: set[Threshold]) -> list[GateRow]:
    """The perplexities per word beside the initial model's; only that of the reference corpus has a threshold."""
    rows = []
    for key, text, kind in (("held_out", "held-out text", CHANGE), ("reference", "reference corpus", FORGETTING)):
        perplexities = figures.get(key)
        if perplexities is None or perplexities["model"] is None:
            continue
        allowed, before = perplexities.get("max_forgetting"), perplexities["initial_model"]
        measured = perplexity_text(perplexities["model"], 2)
        measured += f", {_change(perplexities['model'], before)}" if before else ", the initial model has no score"
        wanted = "no bound" if allowed is None else _allowed(allowed)
        passed = None if allowed is None or before is None else ("word_perplexity", None, kind) not in failed
        rows.append(GateRow(f"Perplexity per word, {text}", kind, measured, wanted, passed))
    return rows


def _pair_rows(summary: Mapping[str, Any], failed: set[Threshold]) -> list[GateRow]:
    """The accuracy on minimal pairs, if there are some."""
    if "minimal_pairs" not in summary:
        return []
    overall, least = summary["minimal_pairs"]["overall"], summary["minimal_pairs"]["min_accuracy"]
    wanted = "no bound" if least is None else f"at least {_percent(least)}"
    passed = None if least is None else passed_value("minimal_pairs", failed)
    return [GateRow("Minimal pairs", VALUE, f"{overall['accuracy']:.1%} of {overall['pairs']:,}", wanted, passed)]


def _allowed(increase: float) -> str:
    """An allowed relative increase in words."""
    if increase > 0:
        return f"may rise by at most {_percent(increase)}"
    return f"must fall by at least {_percent(-increase)}" if increase < 0 else "must not rise"


def _change(perplexity: float, before: float) -> str:
    change = perplexity / before - 1
    change_text = f"{change:+.3g} times" if abs(change) > 1e6 else f"{change:+.2%}"
    return f"{change_text} from {perplexity_text(before, 2)}".replace("-", "\N{MINUS SIGN}")


def _percent(share: float) -> str:
    return f"{100 * share:g}%"
