"""The gate of a fine-tuning in rows: the first score of the task, its value and its change, and that of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.finetune_recipes import TaskGate
from pipeline.report.gate import CHANGE, VALUE, GateRow, failed_thresholds
from pipeline.report.score_forms import NO_SCORE, ScoreForm


def task_gate_rows(
    summary: Mapping[str, Any], metric: str, form: ScoreForm, baseline: Mapping[str, float] | None
) -> list[GateRow]:
    """The thresholds of the recipe against what was measured. TFMA decided; nothing is decided here again.

    Args:
        summary: of `summary.json`; its `gate_failures` begin "METRIC: value" or "METRIC: change".
        metric: the task's first score.
        form: of it.
        baseline: scores of the last comparable blessed model on the same rows; None if there was none.
    """
    gate, failed = summary["recipe"]["gate"], failed_thresholds(summary)
    value, rows = summary["scores"][metric], []
    measured, wanted = form.number(value), f"at least {form.bound(gate['min_score'])}"
    said = "has no value" if measured == NO_SCORE else f"is {measured}"
    reason = f"{form.phrase} {said}, but must be {wanted}"
    rows.append(GateRow(metric, form.title, VALUE, measured, wanted, (metric, VALUE) not in failed, reason))
    rows += _slice_rows(summary, metric, form, failed)
    wanted = _change_wanted(gate["max_score_decrease"], form)
    if baseline is None:
        return [*rows, GateRow(metric, form.title, CHANGE, "no earlier comparable model", wanted, None, "")]
    before = baseline[metric]
    change = NO_SCORE if measured == NO_SCORE else form.difference(value - before)
    measured = f"{change} from {form.number(before)}"
    reason = f"{form.phrase} changed by {measured}, the last blessed model's; it {wanted}"
    return [*rows, GateRow(metric, form.title, CHANGE, measured, wanted, (metric, CHANGE) not in failed, reason)]


def _slice_rows(
    summary: Mapping[str, Any], metric: str, form: ScoreForm, failed: set[tuple[str, str]]
) -> list[GateRow]:
    """The thresholds of parts of the rows; of a part without rows nothing is judged, which TFMA refuses."""
    measured = {(part["by"], part["of"]): part["metrics"][metric] for part in summary["slices"]}
    rows = []
    for by, of, least in TaskGate(**summary["recipe"]["gate"]).slice_bounds:
        name, title = f"{metric} of {by} {of}", f"{form.title} of {by} {of}"
        wanted = f"at least {form.bound(least)}"
        if (by, of) not in measured:
            rows.append(GateRow(name, title, VALUE, "no rows", wanted, None, ""))
            continue
        number = form.number(measured[by, of])
        reason = f"{form.phrase} of {by} {of} is {number}, but must be {wanted}"
        rows.append(GateRow(name, title, VALUE, number, wanted, (name, VALUE) not in failed, reason))
    return rows


def _change_wanted(decrease: float, form: ScoreForm) -> str:
    if decrease > 0:
        return f"may fall by at most {form.amount(decrease)}"
    return f"must rise by at least {form.amount(-decrease)}" if decrease < 0 else "must not fall"
