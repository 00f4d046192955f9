"""The gate of a fine-tuning as rows: value and change of the task's first score, and its value on slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.evaluator.gate_failures import CHANGE, VALUE
from pipeline.recipes.finetuning import TaskGate
from pipeline.report.gate import GateRow, Threshold, above_chance, failed_thresholds, passed_value
from pipeline.report.score_format import NO_SCORE, ScoreForm


def task_gate_rows(
    summary: Mapping[str, Any], metric: str, form: ScoreForm, baseline: Mapping[str, float] | None
) -> list[GateRow]:
    """The thresholds of the recipe with their measurements; the decisions are TFMA's."""
    gate, failed = summary["recipe"]["gate"], failed_thresholds(summary)
    value, rows = summary["scores"][metric], []
    measured, wanted = form.number(value), f"at least {form.bound(gate['min_score'])}"
    wanted += above_chance(form.number(summary["chances"][metric][0]), summary)
    rows.append(GateRow(form.title, VALUE, measured, wanted, passed_value(metric, failed)))
    rows += _slice_rows(summary, metric, form, failed)
    wanted = _change_wanted(gate["max_score_decrease"], form)
    if baseline is None:
        return [*rows, GateRow(form.title, CHANGE, "no earlier comparable model", wanted, None)]
    before = baseline[metric]
    change = NO_SCORE if measured == NO_SCORE else form.difference(value - before)
    measured = f"{change} from {form.number(before)}"
    return [*rows, GateRow(form.title, CHANGE, measured, wanted, (metric, None, CHANGE) not in failed)]


def _slice_rows(summary: Mapping[str, Any], metric: str, form: ScoreForm, failed: set[Threshold]) -> list[GateRow]:
    """The thresholds of slices; TFMA refuses a model if a slice has no rows, which is shown as not checked."""
    measured = {(part["by"], part["of"]): part["metrics"][metric] for part in summary["slices"]}
    rows = []
    for by, value, min_score in TaskGate(**summary["recipe"]["gate"]).slice_bounds:
        title, part = f"{form.title} of {by} {value}", (by, value)
        wanted = f"at least {form.bound(min_score)}"
        if part not in measured:
            rows.append(GateRow(title, VALUE, "no rows", wanted, None))
            continue
        number = form.number(measured[part])
        rows.append(GateRow(title, VALUE, number, wanted, (metric, part, VALUE) not in failed))
    return rows


def _change_wanted(decrease: float, form: ScoreForm) -> str:
    if decrease > 0:
        return f"may fall by at most {form.amount(decrease)}"
    return f"must rise by at least {form.amount(-decrease)}" if decrease < 0 else "must not fall"
