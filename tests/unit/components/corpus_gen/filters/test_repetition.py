"""Expected values by hand; Rae et al. 2021, table A1, and datatrove's functions of these names."""

import pytest

from components.corpus_gen.filters.repetition import (
    _repeated_characters,
    repeated_lines,
    repetition_of_lines,
    repetition_of_words,
)
from components.corpus_gen.settings import QualitySettings
from tests.support.constants import with_constants

OFF = {"repetition_max_top_ngrams": (1, 1, 1), "repetition_max_repeated_ngrams": (1,) * 6}


def only(**limits):
    """Settings in which no other limit on repetition can be exceeded."""
    loose = {"repetition_max_lines": 1, "repetition_max_line_characters": 1, **OFF}
    return with_constants(QualitySettings, **(loose | limits))


def test_repeated_lines_are_those_that_occur_before():
    assert repeated_lines(["a", "bb", "a", "bb", "bb"]) == (3, 5)
    assert repeated_lines(["a", "b"]) == (0, 0)


@pytest.mark.parametrize("limit, rule", [(0.29, "gopher_repeated_lines"), (0.3, ""), (0.31, "")])
def test_share_of_repeated_lines(limit, rule):
    lines = [*"abcdefg", "a", "b", "c"]  # 3 of 10 occur before
    assert repetition_of_lines(lines, 19, only(repetition_max_lines=limit)) == rule


@pytest.mark.parametrize("limit, rule", [(0.24, "gopher_repeated_line_characters"), (0.25, ""), (0.26, "")])
def test_share_of_characters_in_repeated_lines(limit, rule):
    # 4 characters occur before; with the line ends there are 4 + 4 + 6 + 2 = 16.
    assert repetition_of_lines(["abcd", "abcd", "efghij"], 16, only(repetition_max_line_characters=limit)) == rule


@pytest.mark.parametrize(
    "size, limit, rule",
    [
        # "a b c d x a b c d y": 19 characters. The first sequence of each size is the most frequent one, twice.
        (2, 6 / 19 - 0.01, "gopher_top_2_gram"),  # "a b"
        (2, 6 / 19, ""),
        (3, 10 / 19 - 0.01, "gopher_top_3_gram"),  # "a b c"
        (3, 10 / 19, ""),
        (4, 14 / 19 - 0.01, "gopher_top_4_gram"),  # "a b c d"
        (4, 14 / 19, ""),
    ],
)
def test_the_most_frequent_sequence(size, limit, rule):
    limits = [1.0, 1.0, 1.0]
    limits[size - 2] = limit
    settings = only(repetition_max_top_ngrams=tuple(limits))
    assert repetition_of_words([*"abcdxabcdy"], 19, settings) == rule


def test_of_sequences_as_frequent_the_first_counts():
    settings = only(repetition_max_top_ngrams=(0.3, 1, 1))
    assert repetition_of_words(["a", "b", "long", "longer"], 15, settings) == ""  # "a b": 3 / 15
    assert repetition_of_words(["longer", "long", "b", "a"], 15, settings) == "gopher_top_2_gram"  # 11 / 15


def test_repeated_sequences_do_not_overlap():
    # Of 12 equal letters, the 5-grams at 0..7: the first is new, those at 1 and 6 are counted, then none is left.
    assert _repeated_characters(["aaaaa"] * 8, 5) == 10
    assert _repeated_characters(["ab", "bc", "cd"], 2) == 0


@pytest.mark.parametrize("size", [5, 6, 7, 8, 9, 10])
def test_share_of_repeated_sequences(size):
    words = [*"abcdefghijklmnopqrstuvwxyz"[: 2 * size], *"abcdefghijklmnopqrstuvwxyz"[:size]]
    # The last `size` words repeat the first ones: one repeated sequence, of `size` characters.
    characters, limits = 2 * len(words), [1.0] * 6
    for limit, rule in ((size / characters, ""), (size / characters - 0.001, f"gopher_repeated_{size}_grams")):
        limits[size - 5] = limit
        assert repetition_of_words(words, characters, only(repetition_max_repeated_ngrams=tuple(limits))) == rule


def test_the_bound_from_shorter_sequences_hides_no_rule():
    # The most frequent pair occurs 9 times, and so may a sequence of three: its 9 * 5 of 53 characters count.
    words = [*"abc"] * 9
    settings = only(repetition_max_top_ngrams=(1, 45 / 53 - 0.001, 1))
    assert repetition_of_words(words, 53, settings) == "gopher_top_3_gram"


def test_too_few_words_have_no_sequences():
    assert repetition_of_words(["one"], 3, QualitySettings()) == ""
    assert repetition_of_words([], 1, QualitySettings()) == ""
