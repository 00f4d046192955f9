"""Runs all filters that are on, in a fixed order.

A filter is a plain picklable object, `(lines, found) -> (lines, rule)`. It takes the non-blank, stripped lines of a
document, and returns those that stay and the rule that drops the document; "" keeps it. It adds to `found` what it
found in documents, by rule: lines removed, addresses replaced.

    chain = FilterChain(CorpusSettings(cleaning=CleaningSettings(min_characters=5)))
    chain(["abc", "de"], found) == (["abc", "de"], "")
    chain(["abc", "d"], found) == (["abc", "d"], "too_short")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from components.corpus_gen.filters import cleaning
from components.corpus_gen.settings import CorpusSettings

Filter = Callable[[list[str], Counter[str]], tuple[list[str], str]]

EMPTY = "empty"
# Every rule that drops or changes documents, in the order of the filters, with its explanation. corpus.json counts the
# documents that NAME drops as dropped_NAME.
RULES: dict[str, str] = {
    **cleaning.RULES,
    EMPTY: "nothing remains after the filters",
}


def _filters(settings: CorpusSettings) -> Iterator[Filter]:
    """The filters that are on, in their order: cleaning, quality, passages, leaks, perplexity, personal data."""
    if (cleaner := cleaning.Cleaner(settings.cleaning)).on:
        yield cleaner


class FilterChain:
    """All filters that the settings turn on; itself a filter."""

    def __init__(self, settings: CorpusSettings):
        self._filters = list(_filters(settings))

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Filter a document; returns the lines that stay and the first rule that drops it, one of RULES, or ""."""
        for filter_one in self._filters:
            lines, rule = filter_one(lines, found)
            if rule or not lines:
                return lines, rule or EMPTY
        return lines, ""
