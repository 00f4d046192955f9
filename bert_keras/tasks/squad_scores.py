"""SQuAD's scores, in percent, as the official evaluate-v1.1.py and evaluate-v2.0.py work them out.

Written here because nothing kept does it: `torchmetrics` needs torch and knows v1.1 alone, `evaluate` downloads its
metrics when they are used. The rules of text are Rajpurkar et al. (arXiv 1606.05250, section 6.1); those of questions
without an answer, arXiv 1806.03822, section 5, and the official script.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.errors import InputError

# Above it evaluate-v2.0.py takes a question to be answered by "" (`--na-prob-thresh`), whatever the prediction says.
NULL_ODDS_LIMIT = 1.0
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_tokens(text: str) -> list[str]:
    """The words that are compared: lower case, no ASCII punctuation, no articles.

    >>> normalized_tokens("The cat's  hat, a red one")
    ['cats', 'hat', 'red', 'one']
    """
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def scores_of_answered(golds: Sequence[Mapping[str, Any]], answers: Sequence[str | None]) -> dict[str, float]:
    """`exact_match` and `f1` of SQuAD 1.1: means over all questions.

    Args:
        golds: {"answers": [{"text": ...}, ...]} a question; the best counts.
        answers: a text a question; None: there is no prediction, which scores 0.

    Raises:
        InputError: a question without gold answers, which v1.1 does not know.
    """
    exact = f1 = 0.0
    for number, (gold, answer) in enumerate(zip(golds, answers, strict=True)):
        texts = [given["text"] for given in gold["answers"]]
        if not texts:
            raise InputError(f"question {number} (from 0) has no gold answer: score it as squad2.0")
        if answer is not None:
            judged = _best(texts, answer, both_empty=0.0)
            exact, f1 = exact + judged[0], f1 + judged[1]
    return {"exact_match": 100 * exact / len(golds), "f1": 100 * f1 / len(golds)}


def scores_of_answerable(
    golds: Sequence[Mapping[str, Any]],
    answers: Sequence[str | None],
    null_odds: Sequence[float | None] | None = None,
) -> dict[str, float]:
    """The figures of evaluate-v2.0.py: of all questions, of those that have an answer, of those that have none.

    Means over the questions that have a prediction. With `null_odds` the questions whose odds are above
    `NULL_ODDS_LIMIT` count as answered by "", and the best scores that a threshold on the odds could give are there
    (`best_exact`, `best_f1`; `..._thresh`: an answer is given up to it), reached by going through the questions in the
    order of their odds, equal ones in the order that they are given in.

    Args:
        golds: {"answers": [{"text": ...}, ...]} a question; none: it has no answer, "" is right.
        answers: a text a question; "": none; None: there is no prediction.
        null_odds: how much more likely no answer is than the best one; of any scale. Each answer has one.

    Raises:
        InputError: not one question has a prediction.
        ValueError: an answer without null odds, where there are some.
    """
    judged: dict[int, tuple[float, float]] = {}
    for number, (gold, answer) in enumerate(zip(golds, answers, strict=True)):
        if answer is not None:
            texts = [given["text"] for given in gold["answers"] if normalized_tokens(given["text"])]
            judged[number] = _best(texts or [""], answer, both_empty=1.0)
    if not judged:
        raise InputError("no question has a prediction")
    raw, has_answer = dict(judged), [bool(gold["answers"]) for gold in golds]
    if null_odds is not None:
        odds = {number: _given(null_odds[number], number) for number in judged}
        for number in judged:
            if odds[number] > NULL_ODDS_LIMIT:
                judged[number] = (float(not has_answer[number]),) * 2
    figures = _means(list(judged.values()))
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        part = [both for number, both in judged.items() if has_answer[number] == wanted]
        if part:
            figures |= {f"{prefix}_{name}": value for name, value in _means(part).items()}
    if null_odds is not None:
        for place, name in enumerate(("exact", "f1")):
            scores = {number: both[place] for number, both in raw.items()}
            best, threshold = _best_threshold(scores, answers, odds, has_answer)
            figures |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return figures


def _best_threshold(
    scores: Mapping[int, float], answers: Sequence[str | None], odds: Mapping[int, float], has_answer: Sequence[bool]
) -> tuple[float, float]:
    # Below every threshold nothing is answered: right where there is no answer (even where there is no prediction).
    total = best = float(has_answer.count(False))
    threshold = 0.0
    for number in sorted(odds, key=odds.__getitem__):
        if has_answer[number]:
            total += scores[number]
        elif answers[number]:
            total -= 1
        if total > best:
            best, threshold = total, odds[number]
    return 100 * best / len(scores), threshold


def _given(odds: float | None, number: int) -> float:
    if odds is None:
        raise ValueError(f"question {number} (from 0) has a prediction and no null odds")
    return odds


def _means(judged: Sequence[tuple[float, float]]) -> dict[str, float]:
    total = len(judged)
    exact, f1 = (100 * sum(scores) / total for scores in zip(*judged, strict=True))
    return {"exact": exact, "f1": f1, "total": total}


def _best(texts: Sequence[str], answer: str, both_empty: float) -> tuple[float, float]:
    """Exact match and F1, each the best over the gold texts; `both_empty`: the F1 of nothing and nothing."""
    tokens = normalized_tokens(answer)
    golds = [normalized_tokens(text) for text in texts]
    return max(float(gold == tokens) for gold in golds), max(_f1(gold, tokens, both_empty) for gold in golds)


def _f1(gold: list[str], tokens: list[str], both_empty: float) -> float:
    if not gold and not tokens:
        return both_empty
    same = sum((Counter(gold) & Counter(tokens)).values())
    # 2PR / (P + R), with P = same / tokens and R = same / gold.
    return 2 * same / (len(gold) + len(tokens))
