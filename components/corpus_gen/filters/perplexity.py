"""Drops documents by their perplexity under an n-gram model, as CCNet does (Wenzek et al. 2020, section 3.3).

Low is like the text of the model; high is another language, lists of words, garbage. The perplexity of a document is
over all its lines, and the buckets are those of `cc_net/perplexity.py`: `head` is below the first cut point, `middle`
below the second.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from components.corpus_gen.filters.ngram_model import NgramModel
from components.corpus_gen.settings import BUCKETS, CorpusSettings, PerplexitySettings

HIGH, LOW, BUCKET = "perplexity_high", "perplexity_low", "perplexity_bucket"
_IN_BUCKET = "perplexity_in_{}"
RULES = {
    HIGH: "its perplexity is above corpus.perplexity.max",
    LOW: "its perplexity is below corpus.perplexity.min",
    BUCKET: "its perplexity is in a bucket that corpus.perplexity.keep leaves out",
    _IN_BUCKET.format("head"): "documents with a perplexity below the first of corpus.perplexity.cut_points",
    _IN_BUCKET.format("middle"): "documents with a perplexity between corpus.perplexity.cut_points",
    _IN_BUCKET.format("tail"): "documents with a perplexity from the second of corpus.perplexity.cut_points on",
}

# One model for all filters of a worker. Its name is a hash of its content.
_read = functools.lru_cache(maxsize=1)(NgramModel.read)


class Perplexity:
    """The filter of `PerplexitySettings`, whose model and cut points are those that `with_ngram_model` gives."""

    def __init__(self, settings: PerplexitySettings):
        self._settings = settings
        self._model = _read(settings.model)

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Judge a document; returns its lines and the rule that drops it, or ""; counts its bucket."""
        settings = self._settings
        perplexity = self._model.perplexity(lines)
        if settings.max and perplexity > settings.max:
            return lines, HIGH
        if perplexity < settings.min:
            return lines, LOW
        if settings.cut_points:
            bucket = BUCKETS[sum(perplexity >= point for point in settings.cut_points)]
            found[_IN_BUCKET.format(bucket)] += 1
            if settings.keep and bucket not in settings.keep:
                return lines, BUCKET
        return lines, ""


def described(settings: CorpusSettings) -> dict[str, dict[str, Any]]:
    """Model and cut points for `corpus.json`, by their name there; empty without a model."""
    one = settings.perplexity
    if not one.model:
        return {}
    return {"perplexity": {"model": one.model.rpartition("/")[2], "cut_points": list(one.cut_points)}}
