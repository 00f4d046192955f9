"""Trains an n-gram model: interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998, section 3).

The counts, the discounts of each length and what a pruned n-gram leaves to the backoff are those of KenLM's
`lmplz --prune 0 0 1` (Heafield et al. 2013, "Scalable Modified Kneser-Ney Language Model Estimation"): n-grams
of three and more words that occur once are left out, as SRILM does by default, too.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np

from components.corpus_gen.filters.ngram_model import BEGIN, UNKNOWN, Level, NgramModel, hash_pair, hash_word, join

# Words of the shortest n-grams that are left out if they occur once.
_PRUNED_FROM = 3
# For a text too small to estimate them; those of lmplz --discount_fallback.
_DEFAULT_DISCOUNTS = (0.5, 1.0, 1.5)
_WORD = np.uint64(0xFFFFFFFF)


@dataclasses.dataclass
class _Counted:
    """Distinct n-grams of one length, sorted by `keys` (`join`).

    Attributes:
        counts: int64 [R]: of the longest n-grams and those that begin a line their number, of others that of different
            words before them.
        kept: bool [R]: not left out.
        suffixes: int64 [R]: row of the last n - 1 words among the n-grams of that length.
    """

    keys: np.ndarray
    counts: np.ndarray
    kept: np.ndarray
    suffixes: np.ndarray


def train(hashes: np.ndarray, order: int) -> NgramModel:
    """A model of n-grams of up to `order` words.

    Args:
        hashes: of the words of a text, uint64 [words], a line after the other, each as `ngram_model.sentence` gives it.
    """
    vocabulary, words = np.unique(np.append(hashes, np.uint64(hash_word(UNKNOWN))), return_inverse=True)
    begin, unknown = np.searchsorted(vocabulary, np.array([hash_word(BEGIN), hash_word(UNKNOWN)], np.uint64))
    words = words[:-1].astype(np.int32)
    counts = np.bincount(words, minlength=len(vocabulary))
    counted = [_Counted(vocabulary, counts, np.ones(len(vocabulary), bool), np.zeros(len(vocabulary), np.int64))]
    ending = words
    for length in range(2, order + 1):
        # A line's beginning is in no n-gram but as its first word.
        places = np.flatnonzero((ending[:-1] >= 0) & (words[1:] != begin)) + 1
        keys, first, rows, counts = np.unique(
            join(ending[places - 1], words[places]), return_index=True, return_inverse=True, return_counts=True
        )
        if not len(keys):
            break
        kept = counts > 1 if length >= _PRUNED_FROM else np.ones(len(keys), bool)
        counted.append(_Counted(keys, counts, kept, ending[places[first]].astype(np.int64)))
        ending = np.full(len(words), -1, np.int32)
        ending[places] = rows
        shorter = counted[-2]
        before = np.bincount(counted[-1].suffixes, minlength=len(shorter.keys))
        shorter.counts = np.where(before > 0, before, shorter.counts)
    counted[0].counts[[begin, unknown]] = 0
    return NgramModel(_levels(counted, begin))


def _levels(counted: list[_Counted], begin: int) -> list[Level]:
    # Below the words: each as probable as any other. A line's beginning is never next.
    lower = np.full(1, 1 / (len(counted[0].keys) - 1))
    contexts = np.zeros(len(counted[0].keys), np.int64)
    probs: list[np.ndarray] = []
    backoffs: list[np.ndarray] = []
    for length, some in enumerate(counted):
        if length:
            contexts = (some.keys >> np.uint64(32)).astype(np.int64)
            lower = probs[-1]
        total = np.bincount(contexts, some.counts, minlength=len(lower) if length else 1)
        discounted = np.where(some.kept, some.counts - _discounts(some.counts), 0.0)
        left = np.bincount(contexts, some.counts - discounted, minlength=len(total))
        backoff = np.where(total > 0, left / np.maximum(total, 1), 1.0)
        backoffs.append(backoff)
        probs.append(discounted / np.maximum(total, 1)[contexts] + backoff[contexts] * lower[some.suffixes])
        if not length:
            probs[0][begin] = 1.0
    levels: list[Level] = []
    rows = np.zeros(0, np.int64)
    for length, some in enumerate(counted):
        keys = some.keys[some.kept]
        if length:
            keys = hash_pair(join(rows[(keys >> np.uint64(32)).astype(np.int64)], keys & _WORD))
        order = np.argsort(keys)
        after = backoffs[length + 1] if length + 1 < len(counted) else np.ones(len(some.keys))
        numbers = (np.log10(numbers[some.kept][order]).astype(np.float32) for numbers in (probs[length], after))
        levels.append(Level(keys[order], *numbers))
        rows = np.full(len(some.keys), -1)
        rows[np.flatnonzero(some.kept)[order]] = np.arange(len(order))
    return [*itertools.takewhile(lambda level: len(level.keys), levels)]


def _discounts(counts: np.ndarray) -> np.ndarray:
    """What is taken off each count: D1, D2, D3+ of Chen and Goodman, equation 26; nothing of 0."""
    found = np.bincount(np.minimum(counts, 5), minlength=6).tolist()[1:5]
    discounts: Iterable[float] = _DEFAULT_DISCOUNTS
    if all(found[:3]):
        share = found[0] / (found[0] + 2 * found[1])
        estimated = [k - (k + 1) * share * found[k] / found[k - 1] for k in (1, 2, 3)]
        if all(0 <= discount <= k for k, discount in enumerate(estimated, 1)):
            discounts = estimated
    return np.array([0.0, *discounts])[np.minimum(counts, 3)]
