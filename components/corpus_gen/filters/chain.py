"""Runs all filters that are on, in a fixed order.

A filter is a plain picklable object, `(lines, found) -> (lines, rule)`. It takes the non-blank, stripped lines of a
document, and returns those that stay and the rule that drops the document; "" keeps it. It adds to `found` what it
found in documents, by rule: lines removed, addresses replaced.

    chain = FilterChain(CorpusSettings(cleaning=CleaningSettings(min_characters=5)))
    chain(["abc", "de"], found) == (["abc", "de"], "")
    chain(["abc", "d"], found) == (["abc", "d"], "too_short")
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from components.corpus_gen.filters import cleaning, leaks, passages, personal_data, quality
from components.corpus_gen.settings import CorpusSettings

Filter = Callable[[list[str], Counter[str]], tuple[list[str], str]]

EMPTY = "empty"
# Every rule that drops or changes documents, in the order of the filters, with its explanation. corpus.json counts the
# documents that NAME drops as dropped_NAME.
RULES: dict[str, str] = {
    **cleaning.RULES,
    **passages.RULES,
    **quality.RULES,
    **leaks.RULES,
    **personal_data.RULES,
    EMPTY: "nothing remains after the filters",
}


def _filters(settings: CorpusSettings) -> Iterator[Filter]:
    """The filters that are on, in their order."""
    # Passages are early, as in CCNet: the filters before them run twice, and quality costs ten times as much as others.
    if (cleaner := cleaning.Cleaner(settings.cleaning)).on:
        yield cleaner
    if settings.passages.unit != "none":
        yield passages.Passages(settings)
    if (rules := quality.Quality(settings.quality)).on:
        yield rules
    if settings.decontaminate:
        (table,) = settings.decontaminate
        yield leaks.LeakFilter(settings.leaks, table)
    if (personal := personal_data.PersonalData(settings.personal_data)).on:
        yield personal


class FilterChain:
    """All filters that the settings turn on; itself a filter. `passages` is that of repeated passages, if it is on."""

    def __init__(self, settings: CorpusSettings, before: type | None = None):
        """Make the filters that are on; if `before` is the class of one, those before it."""
        self._filters = list(itertools.takewhile(lambda filter_: type(filter_) is not before, _filters(settings)))
        self.passages = next((filter_ for filter_ in self._filters if isinstance(filter_, passages.Passages)), None)

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Filter a document; returns the lines that stay and the first rule that drops it, one of RULES, or ""."""
        for filter_ in self._filters:
            lines, rule = filter_(lines, found)
            if rule or not lines:
                return lines, rule or EMPTY
        return lines, ""
