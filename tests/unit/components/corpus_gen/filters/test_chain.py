import pickle
from collections import Counter

import pytest

from components.corpus_gen.filters import chain
from components.corpus_gen.filters.chain import EMPTY, RULES, FilterChain
from components.corpus_gen.filters.cleaning import Cleaner
from components.corpus_gen.filters.passages import Passages
from components.corpus_gen.settings import (
    CleaningSettings,
    CorpusSettings,
    PassageSettings,
    PersonalDataSettings,
    QualitySettings,
)


def test_all_filters_are_off_by_default():
    lines, found = ["!", "e\u0301"], Counter()
    kept, rule = FilterChain(CorpusSettings())(lines, found)
    assert kept is lines and rule == "" and not found and not FilterChain(CorpusSettings())._filters


def test_the_first_rule_that_drops_a_document_is_named():
    settings = CorpusSettings(
        cleaning=CleaningSettings(min_characters=3), quality=QualitySettings(c4=True, c4_min_sentences=1)
    )
    filters = FilterChain(settings)
    assert filters(["!?"], Counter()) == (["!?"], "too_short")
    assert filters(["!?!"], Counter())[1] == "c4_few_sentences"
    assert filters(["That is it."], Counter()) == (["That is it."], "")


class Remove:
    """Removes lines with a word."""

    def __init__(self, word, rule=""):
        self.word, self.rule = word, rule

    def __call__(self, lines, found):
        kept = [line for line in lines if self.word not in line]
        found[f"without_{self.word}"] += len(lines) - len(kept)
        return kept, self.rule if len(kept) < len(lines) else ""


@pytest.fixture
def filters(monkeypatch):
    monkeypatch.setattr(chain, "_filters", lambda settings: iter([Remove("a"), Remove("b", "no_b"), Remove("c")]))
    return FilterChain(CorpusSettings())


def test_each_filter_gets_what_the_one_before_left(filters):
    found = Counter()
    assert filters(["a b", "c", "d"], found) == (["d"], "")
    assert +found == {"without_a": 1, "without_c": 1}


def test_the_filters_after_a_dropped_document_do_not_see_it(filters):
    found = Counter()
    assert filters(["a", "b", "c"], found) == (["c"], "no_b")
    assert found == {"without_a": 1, "without_b": 1}  # no count for "c"


def test_a_document_of_which_nothing_remains_is_dropped(filters):
    found = Counter()
    assert filters(["a", "a"], found) == ([], EMPTY) and list(found) == ["without_a"]
    assert filters(["a", "c"], Counter()) == ([], EMPTY)
    assert EMPTY in RULES


@pytest.mark.parametrize(
    ("settings", "line", "expected"),
    [
        ({"cleaning": CleaningSettings(min_characters=5)}, "abcd", ("abcd", "too_short")),
        ({"quality": QualitySettings(gopher=True)}, "Menu", ("Menu", "gopher_few_words")),
        ({"personal_data": PersonalDataSettings(email=True)}, "To ann@mail.org.", ("To [email].", "")),
    ],
)
def test_a_chain_with_each_filter_can_be_pickled(settings, line, expected):
    filters = pickle.loads(pickle.dumps(FilterChain(CorpusSettings(**settings))))
    (kept,), rule = filters([line], Counter())
    assert (kept, rule) == expected


def test_the_filters_before_repeated_passages_are_cheap():
    """They run in both passes over the text."""
    quality, passages = QualitySettings(gopher=True), PassageSettings(unit="lines")
    settings = CorpusSettings(cleaning=CleaningSettings(min_characters=3), quality=quality, passages=passages)
    assert [type(one) for one in FilterChain(settings, before=Passages)._filters] == [Cleaner]
