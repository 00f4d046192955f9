"""Repeated passages are dropped where others keep them; the rest of a document stays as it was."""

from collections import Counter

import numpy as np
import pytest

from components.corpus_gen.filters import passages
from components.corpus_gen.filters.passage_counts import repeated_passages
from components.corpus_gen.filters.passages import LINES, ROW, SENTENCES, TOO_SHORT, Passages
from components.corpus_gen.settings import CorpusSettings, PassageSettings

PAIR = np.dtype([("passage", "<u8"), ("document", "<u8")])


def corpus_settings(unit="lines", min_characters=1, **settings):
    return CorpusSettings(passages=PassageSettings(unit=unit, min_characters=min_characters, **settings))


def hashed(documents, settings):
    """(passage, document) pairs of documents, lists of lines."""
    one = Passages(settings)
    pairs = []
    for lines in documents:
        document, found = one.hashes(one.units(lines))
        pairs += [(passage, document) for passage in found]
    return np.array(pairs, PAIR)


def filtered(documents, settings):
    """[(lines, rule)] of each document, and what was found; documents are given in the order of their hashes."""
    one, found = Passages(settings), Counter()
    one.start(iter([repeated_passages(hashed(documents, settings), settings.passages)]))
    return [one(lines, found) for lines in documents], found


def in_order(documents, settings):
    """The documents, the one with the smallest hash first."""
    one = Passages(settings)
    return sorted(documents, key=lambda lines: one.hashes(one.units(lines))[0])


def test_only_lines_in_a_repeated_window_are_dropped():
    settings = corpus_settings(window=3)
    shared = [f"shared {i}" for i in range(5)]
    documents = in_order(
        [["one", *shared, "end"], ["two", *shared[:2], "own", *shared[1:], "own", "shared 0"]], settings
    )
    results, found = filtered(documents, settings)
    # Two in a row are no passage of three.
    expected = (
        ["two", *shared[:2], "own", "own", "shared 0"] if documents[1][0] == "two" else ["one", "shared 0", "end"]
    )
    assert results == [(documents[0], ""), (expected, "")] and found[LINES] == 4


def test_sentences_are_cut_out_of_lines():
    settings = corpus_settings("sentences", window=2)
    notice = ["It is provided as", "is. No warranty", "is given."]
    first, second = in_order(
        [
            ["Own text one. " + notice[0], *notice[1:]],
            ["Other text. " + notice[0], *notice[1:-1], "is given. The end."],
        ],
        settings,
    )
    (kept, dropped), found = filtered([first, second], settings)
    assert kept == (first, "") and found == {SENTENCES: 2}
    assert dropped == (["Other text.", "The end."] if "Other" in second[0] else ["Own text one."], "")


def test_lines_stay_apart_where_a_sentence_between_them_goes():
    settings = corpus_settings("sentences", window=1)
    first, second = in_order([["A begins. Same", "one. C ends."], ["D begins. Same", "one. E", "ends."]], settings)
    dropped = filtered([first, second], settings)[0][1]
    assert dropped == (["D begins.", "E", "ends."] if second[0][0] == "D" else ["A begins.", "C ends."], "")


def test_blanks_between_words_do_not_distinguish():
    settings = corpus_settings(window=1)
    one = Passages(settings)
    assert one.hashes(["a  b\tc"])[1] == one.hashes(["a b c"])[1] != one.hashes(["a bc"])[1]


def test_the_order_in_a_window_matters():
    one = Passages(corpus_settings(window=2))
    assert one.hashes(["a", "b"])[1] != one.hashes(["b", "a"])[1]
    assert one.hashes(["a", "b", "a", "b"])[1].tolist()[0] == one.hashes(["a", "b", "a", "b"])[1].tolist()[2]


@pytest.mark.parametrize(("min_characters", "rule"), [(7, ""), (8, TOO_SHORT)])
def test_a_document_that_becomes_too_short_is_dropped(min_characters, rule):
    settings = corpus_settings(window=1, min_characters=min_characters)
    documents = in_order([["abc", "Same.", "defg"], ["abd", "Same.", "defh"]], settings)
    results, _ = filtered(documents, settings)
    # Short from the beginning, as the first is, is no matter of this filter.
    assert results[0] == (documents[0], "") and results[1] == ([documents[1][0], documents[1][2]], rule)
    assert filtered([["ab"]], settings)[0] == [(["ab"], "")]


def test_each_table_is_for_the_next_documents(monkeypatch):
    monkeypatch.setattr(passages, "TABLE_PASSAGES", 3)
    settings = corpus_settings(window=1, keep=0)
    one = Passages(settings)
    drop_a = np.array([(one.hashes(["a"])[1][0], 0)], ROW)
    one.start(iter([drop_a, drop_a[:0], drop_a]))
    found = Counter()
    # The tables cover 2 + 2, 4 and 1 passages.
    documents = [["a", "b"], ["a", "c"], ["a", "d", "e", "f"], ["a"], ["g"]]
    assert [one(lines, found)[0] for lines in documents] == [["b"], ["c"], ["a", "d", "e", "f"], [], ["g"]]
    assert found == {LINES: 3}


def test_no_table_drops_nothing():
    one = Passages(corpus_settings(window=1))
    assert one(["a"], Counter()) == (["a"], "")
