"""The decisions of both gates as sentences and rows, from `summary.json` and the baseline's metrics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_keras.objectives.table import PARTS, perplexity_text
from components.evaluator.gate_failures import CHANCE, CHANGE, FORGETTING, TEACHER, VALUE
from components.example_gate.limits import Figure
from pipeline.recipes.finetuning import TaskGate
from pipeline.report.score_format import MINUS, NO_SCORE, ScoreForm
from pipeline.summaries.gate_failures import advice, failures_of, reasons

# A row's scale ends at this multiple of its last limit.
MARGIN = 1.25
# Metric, slice and kind.
Threshold = tuple[str | None, tuple[str, str] | None, str]


class GateRow(NamedTuple):
    """A threshold of a kind: `VALUE`, which includes chance, `CHANGE`, `FORGETTING` or `TEACHER`.

    `passed` is None if it is unchecked.
    """

    metric: str
    kind: str
    measured: str
    wanted: str
    passed: bool | None


class Verdict(NamedTuple):
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
                    change = None if baseline is None else _change(summary[name], baseline[name])
                    wanted = _allowed(gate["max_mlm_perplexity_increase"], "rise", "fall", _percent)
                    rows.append(_change_row(name, metric, change, wanted, failed))
    rows += _word_rows(summary.get("word_perplexity", {}), failed)
    if pairs := summary.get("minimal_pairs"):
        overall, least = pairs["overall"], pairs["min_accuracy"]
        wanted = "no bound" if least is None else f"at least {_percent(least)}"
        passed = None if least is None else passed_value("minimal_pairs", failed)
        measured = f"{overall['accuracy']:.1%} of {overall['pairs']:,}"
        rows.append(GateRow("Minimal pairs", VALUE, measured, wanted, passed))
    return rows + _teacher_rows(summary, "mlm_accuracy", "Masked-LM accuracy", "{:.1%}".format, failed)


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
    """Return whether the metric reached both its bound and the floor of chance."""
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


def _change_row(name: str, title: str, change: str | None, wanted: str, failed: set[Threshold]) -> GateRow:
    if not change:
        return GateRow(title, CHANGE, "no earlier comparable model", wanted, None)
    return GateRow(title, CHANGE, change, wanted, (name, None, CHANGE) not in failed)


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
        wanted = "no bound" if allowed is None else _allowed(allowed, "rise", "fall", _percent)
        passed = None if allowed is None or before is None else ("word_perplexity", None, kind) not in failed
        rows.append(GateRow(f"Perplexity per word, {text}", kind, measured, wanted, passed))
    return rows


def _teacher_rows(
    summary: Mapping[str, Any], metric: str, title: str, number: Callable[[float], str], failed: set[Threshold]
) -> list[GateRow]:
    if not (teacher := summary.get("teacher")):
        return []
    before, share = teacher["scores"][metric], summary["recipe"]["gate"]["min_share_of_teacher"]
    wanted = "no bound" if share is None else f"at least {_percent(share)}"
    measured = f"{(teacher['model'] or 0.0) / before:.1%} of {number(before)}" if before else NO_SCORE
    passed = None if share is None else (metric, None, TEACHER) not in failed
    return [GateRow(title, TEACHER, measured, wanted, passed)]


def _allowed(change: float, worse: str, better: str, number: Callable[[float], str]) -> str:
    """An allowed change for the worse in words; a negative one is a required improvement."""
    if change > 0:
        return f"may {worse} by at most {number(change)}"
    return f"must {better} by at least {number(-change)}" if change < 0 else f"must not {worse}"


def _change(perplexity: float, before: float) -> str:
    change = perplexity / before - 1
    change_text = f"{change:+.3g} times" if abs(change) > 1e6 else f"{change:+.2%}"
    return f"{change_text} from {perplexity_text(before, 2)}".replace("-", MINUS)


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


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
    rows += _teacher_rows(summary, metric, form.title, form.number, failed)
    change = None
    if baseline is not None:
        before = baseline[metric]
        difference = NO_SCORE if measured == NO_SCORE else form.difference(value - before)
        change = f"{difference} from {form.number(before)}"
    wanted = _allowed(gate["max_score_decrease"], "fall", "rise", form.amount)
    return [*rows, _change_row(metric, form.title, change, wanted, failed)]


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


class DataRow(NamedTuple):
    """A figure of the data gate; `low` and `high`, its limits, and `at` are positions on the row's scale, in [0, 1]."""

    label: str
    value: str
    wanted: str
    low: float
    high: float
    at: float


def data_rows(figures: Sequence[Mapping[str, Any]]) -> list[DataRow]:
    """A row for each evaluated figure of `verdict.json`, on a scale from 0 to beyond its limits."""
    rows = []
    for figure in (Figure(**fields) for fields in figures):
        if (value := figure.value) is not None:
            low, high = figure.minimum or 0.0, figure.maximum
            end = max(value, MARGIN * (low if high is None else high)) or 1.0
            upper = 1.0 if high is None else high / end
            rows.append(DataRow(figure.title, figure.text(value), figure.wanted, low / end, upper, value / end))
    return rows
