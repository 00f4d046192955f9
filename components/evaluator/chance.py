"""Standard errors, and the floor of chance: scores of guesses made without reading, and how far a model is above them.

Above means by two standard errors of the difference (`STANDARD_ERRORS`); see
docs/decisions/0021-every-gate-has-a-floor-of-chance.md.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from bert_keras.tasks.answers import NEAREST
from bert_keras.tasks.metrics.scores import POSITIVE
from bert_keras.tasks.table import Task

# Required distance from chance, in standard errors of the difference.
STANDARD_ERRORS = 2.0
# A difference below this share of the score is rounding; without any variance there is no error to divide by.
_ROUNDING, _MOST = 1e-5, 1e3
# For spans: number of the most frequent answers tried, and lengths in words of random parts of a context.
_COMMONEST, _WINDOWS = 3, (3, 10, 30)


def ratio_of_groups(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """sum(a) / sum(b) and its standard error, from the sums of G independent groups, float64 [G]; NaN without an error.

    Rows of one group may depend on each other: with R = sum(a) / sum(b) the variance is
    G / (G - 1) * sum((a - R b)^2) / sum(b)^2 (Cochran 1977, Sampling Techniques, 6.3 and 9A).

    >>> [round(value, 4) for value in ratio_of_groups(np.array([2.0, 1.0, 2.0]), np.array([3.0, 4.0, 1.0]))]
    [0.625, 0.3121]
    """
    groups, total = len(b), b.sum()
    ratio = float(a.sum() / total) if total else math.nan
    if groups < 2 or math.isnan(ratio):
        return ratio, math.nan
    residuals = a - ratio * b
    return ratio, math.sqrt(groups / (groups - 1.0) * float(residuals @ residuals)) / float(total)


def margin_errors(groups: int) -> float:
    """Half the width of a 95 % interval in standard errors of `groups` groups (Student 1908): 2.093 of 20."""
    return float(stats.t.ppf(0.975, groups - 1)) if groups > 1 else math.nan


def over_chance(difference: float, score: float, standard_error: float) -> float:
    """Number of standard errors by which a score is above chance, from -1,000 to 1,000; NaN if there are none.

    >>> over_chance(0.1, 0.6, 0.04), over_chance(0.0, 0.5, 0.0)
    (2.5, 0.0)
    """
    if math.isnan(difference) or math.isnan(standard_error):
        return math.nan
    if abs(difference) <= _ROUNDING * abs(score):
        return 0.0
    ratio = difference / standard_error if standard_error else math.copysign(_MOST, difference)
    return max(-_MOST, min(_MOST, ratio))


def guesses(task: Task, golds: Sequence[Any], contexts: Sequence[str]) -> list[list[Any]]:
    """Constant or random answers for all rows, made without reading; none for numbers: constants have no correlation.

    They are: the most frequent label, and "1", whose F1 some tasks are scored by; of several labels the set with the
    best micro F1, of the most frequent ones; the most frequent choice; each tag for all words; the most frequent
    answers and random parts of the contexts; random texts, and a random order of passages. `golds`: `TaskRow.gold`.
    """
    if task.kind in ("regression", "similarity"):
        return []
    if task.kind == "ranking":
        rng = random.Random(0)
        return [[rng.random() for _ in golds]]
    if task.kind == "retrieval":
        rng, distinct = random.Random(0), sorted(set(golds))
        return [[rng.sample(distinct, min(NEAREST, len(distinct))) for _ in golds]]
    if task.kind == "tagging":
        tags = sorted({tag for gold in golds for tag in gold})
        return [[[tag] * len(gold) for gold in golds] for tag in tags]
    if task.kind == "multi_label":
        commonest_first = Counter(label for gold in golds for label in gold).most_common()
        right = np.cumsum([0, *(count for _, count in commonest_first)])  # by the number of labels in the set
        best = int(np.argmax(right / np.maximum(1, right[-1] + len(golds) * np.arange(len(right)))))
        return [[[label for label, _ in commonest_first[:best]]] * len(golds)]
    if task.kind == "span":
        texts = Counter(text for gold in golds for text in sorted({given["text"] for given in gold["answers"]}))
        constants = ["", *(text for text, _ in texts.most_common(_COMMONEST))]
        pieces = [_pieces(contexts, words) for words in _WINDOWS] if contexts else []
        return [[text] * len(golds) for text in constants] + pieces
    commonest, _ = Counter(golds).most_common(1)[0]
    constants = [commonest, POSITIVE] if POSITIVE in golds and commonest != POSITIVE else [commonest]
    return [[answer] * len(golds) for answer in constants]


def _pieces(contexts: Sequence[str], size: int) -> list[str]:
    """A random run of `size` words of each context."""
    rng, pieces = random.Random(size), []
    for context in contexts:
        words = context.split()
        start = rng.randrange(max(1, len(words) - size + 1))
        pieces.append(" ".join(words[start : start + size]))
    return pieces
