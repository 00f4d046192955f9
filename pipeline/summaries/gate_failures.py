"""Sentences for the missed thresholds in `summary.json` (`components.evaluator.gate_failures`), and advice."""

import math
from collections.abc import Mapping
from typing import Any

from components.evaluator.gate_failures import CHANCE, CHANGE, EMPTY, FORGETTING, TEACHER, VALUE, GateFailure

_TRAINING, _FINETUNING, _SERVING = "see docs/trouble.md", "see docs/finetuning.md", "see docs/serving.md"
# Above the perplexity of a uniform guess with any vocabulary.
_MOST_PERPLEXITY = 1e8
# By whether the model was pre-trained, and by the kind of the missed threshold.
_TRY = {
    (True, VALUE): f"more steps (training.num_train_steps), more text, or a larger model; {_TRAINING}",
    (True, CHANGE): "the baseline model is better: train longer, or allow gate.max_mlm_perplexity_increase; "
    + _TRAINING,
    (True, FORGETTING): "a lower training.learning_rate, fewer steps, training.layer_decay below 1, or general text "
    "with --replay; or allow gate.max_forgetting; see docs/continuing.md",
    (True, TEACHER): "more steps, a larger student, first weights from the teacher (convert --layers, --init), or "
    "another distillation.weight; or allow less with gate.min_share_of_teacher; see docs/small-models.md",
    (False, VALUE): f"more rows or epochs, other settings (--search), or a better initial checkpoint; {_FINETUNING}",
    (False, CHANGE): "the baseline model is better: train longer, other seeds (--restarts 5), or allow "
    f"gate.max_score_decrease; {_FINETUNING}",
    (False, TEACHER): "more rows (--unlabelled), more epochs, a larger student, or another distillation.temperature; "
    "or allow less with gate.min_share_of_teacher; see docs/small-models.md",
    (False, CHANCE): "it has not learned from the rows: another training.learning_rate or seed (--restarts 5; small "
    "sets often fail with one), more rows or epochs, or a model that knows the language (--init); " + _FINETUNING,
}
_NOT_BEGUN = (
    "{metric} stuck at the unigram model's: it has not begun to learn; more steps (training.num_train_steps), a higher "
    f"training.learning_rate, or more text; {_TRAINING}"
)
_NO_PAIRS = (
    "next sentences are not learned: more steps, for they come after the masked tokens, or "
    f"examples.objective=full_sentences, which has none; {_TRAINING}"
)


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
    if failure.kind == TEACHER:
        share = (failure.value or 0.0) / failure.baseline if failure.baseline else math.nan
        return (
            f"{name}: {failure.value:.4g} is {share:.1%} of the teacher's {failure.baseline:.4g} "
            f"(threshold: {failure.direction} {failure.bound:.1%})"
        )
    if failure.kind == CHANGE:
        allowed = f"{failure.allowed_change:+.1%}" if failure.relative else f"{failure.allowed_change:+g}"
        return (
            f"{name}: {failure.value:.4g}, the baseline model's is {failure.baseline:.4g} "
            f"(threshold: a change of {failure.direction} {allowed})"
        )
    return f"{name}: {failure.value:.4g} (threshold: {failure.direction} {failure.bound:g})"


def advice(summary: Mapping[str, Any]) -> list[str]:
    """One line of advice per problem of a refused model; none for a blessed one.

    Advice on chance replaces that on values; divergence replaces all.
    """
    failures, pretrained = failures_of(summary), summary["workflow"] == "pretrain"
    at_chance = {failure.metric for failure in failures if failure.kind == CHANCE}
    lines = []
    for failure in failures:
        metric, kind = failure.metric or "", failure.kind
        if pretrained and metric.endswith("perplexity") and not (failure.value or 0.0) < _MOST_PERPLEXITY:
            lines.append(f"the model diverged: a lower training.learning_rate, or a longer warm-up; {_TRAINING}")
        elif kind == CHANCE and metric.startswith(("nsp", "sop")):
            pairs = "sentence orders" if metric.startswith("sop") else "next sentences"
            lines.append(_NO_PAIRS.replace("next sentences", pairs))
        elif kind == CHANCE and pretrained:
            lines.append(_NOT_BEGUN.format(metric=metric.partition("_")[2]))
        elif kind == CHANCE or failure.metric not in at_chance:
            lines += [_TRY[pretrained, kind]] if (pretrained, kind) in _TRY else []
    if summary["serving"]["problems"]:
        lines.append(f"a smaller model, or other limits (serving.*); {_SERVING}")
    return list(dict.fromkeys(lines))
