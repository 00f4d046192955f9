"""SQuAD's scores, in percent, as computed by the official evaluate-v1.1.py and evaluate-v2.0.py.

No maintained library fits: `torchmetrics` needs torch and has only v1.1, `evaluate` downloads its metrics on use. The
rules for text are from arXiv 1606.05250, section 6.1; those for questions without an answer from arXiv 1806.03822,
section 5, and the official script. Of languages without blanks between words, MLQA's script (arXiv 1910.07475, section
5) makes each letter a word.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_keras.errors import InputError
from bert_keras.tokenizers.normalize import basic_tokenize, space_letters

# Above it evaluate-v2.0.py treats a question as answered by "" (`--na-prob-thresh`), whatever the prediction.
NULL_ODDS_LIMIT = 1.0
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_tokens(text: str) -> list[str]:
    """The words to compare: lower case, no ASCII punctuation, no articles.

    >>> normalized_tokens("The cat's  hat, a red one")
    ['cats', 'hat', 'red', 'one']
    """
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def letters_and_words(text: str) -> list[str]:
    """The words to compare in any language: lower case, no punctuation; articles stay.

    Letters of scripts without blanks are words. For Chinese the words of MLQA's mlqa_evaluation_v1.py, without control
    characters; that script knows the articles of other languages, and no other script without blanks.

    >>> letters_and_words("《红楼梦》, in 1791 年")
    ['红', '楼', '梦', 'in', '1791', '年']
    """
    letters = (c for c in text.lower() if c not in string.punctuation and unicodedata.category(c)[0] != "P")
    return basic_tokenize(space_letters("".join(letters)), lower_case=False)


def scores_of_answered(
    golds: Sequence[Mapping[str, Any]],
    answers: Sequence[str | None],
    words_of: Callable[[str], list[str]] = normalized_tokens,
) -> dict[str, float]:
    """`exact_match` and `f1` of SQuAD 1.1, or MLQA: means over all questions.

    Args:
        golds: {"answers": [{"text": ...}, ...]} for each question; the best one counts.
        answers: one text per question; None: a missing prediction, which scores 0.
        words_of: the words to compare; MLQA's are those of `letters_and_words`.
    """
    exact = f1 = 0.0
    for number, (gold, answer) in enumerate(zip(golds, answers, strict=True)):
        texts = [answer_["text"] for answer_ in gold["answers"]]
        if not texts:
            raise InputError(f"question {number} (from 0) has no gold answer: score it as squad2.0")
        if answer is not None:
            judged = _best(texts, answer, both_empty=0.0, words_of=words_of)
            exact, f1 = exact + judged[0], f1 + judged[1]
    return {"exact_match": 100 * exact / len(golds), "f1": 100 * f1 / len(golds)}


def scores_of_answerable(
    golds: Sequence[Mapping[str, Any]], answers: Sequence[str | None], null_odds: Sequence[float | None] | None = None
) -> dict[str, float]:
    """The figures of evaluate-v2.0.py: for all questions, for those with an answer, for those without.

    Means over the questions with a prediction. With `null_odds`, questions whose odds exceed `NULL_ODDS_LIMIT` count as
    answered by "", and the best scores for any threshold on the odds are added (`best_exact`, `best_f1`; `..._thresh`:
    the largest odds with an answer), found by visiting the questions in order of their odds, equal ones in input order.

    Args:
        golds: {"answers": [{"text": ...}, ...]} for each question; empty: "" is right.
        answers: one text per question; "": no answer; None: a missing prediction.
        null_odds: score of no answer relative to the best answer, on any scale; one per answer.
    """
    judged: dict[int, tuple[float, float]] = {}
    for number, (gold, answer) in enumerate(zip(golds, answers, strict=True)):
        if answer is not None:
            texts = [answer_["text"] for answer_ in gold["answers"] if normalized_tokens(answer_["text"])]
            judged[number] = _best(texts or [""], answer, both_empty=1.0, words_of=normalized_tokens)
    if not judged:
        raise InputError("no question has a prediction")
    raw, has_answer = dict(judged), [bool(gold["answers"]) for gold in golds]
    if null_odds is not None:
        odds = {number: value for number in judged if (value := null_odds[number]) is not None}
        if missing := judged.keys() - odds.keys():
            raise ValueError(f"question {min(missing)} (from 0) has a prediction and no null odds")
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
    # Below every threshold all answers are "": right for questions without an answer (even without a prediction).
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


def _means(judged: Sequence[tuple[float, float]]) -> dict[str, float]:
    total = len(judged)
    exact, f1 = (100 * sum(scores) / total for scores in zip(*judged, strict=True))
    return {"exact": exact, "f1": f1, "total": total}


def _best(
    texts: Sequence[str], answer: str, both_empty: float, words_of: Callable[[str], list[str]]
) -> tuple[float, float]:
    """Exact match and F1, each the best over the gold texts; `both_empty`: the F1 of two empty texts."""
    tokens = words_of(answer)
    golds = [words_of(text) for text in texts]
    return max(float(gold == tokens) for gold in golds), max(_f1(gold, tokens, both_empty) for gold in golds)


def _f1(gold: list[str], tokens: list[str], both_empty: float) -> float:
    if not gold and not tokens:
        return both_empty
    same = sum((Counter(gold) & Counter(tokens)).values())
    # 2PR / (P + R), with P = same / tokens and R = same / gold.
    return 2 * same / (len(gold) + len(tokens))
