"""Texts of evaluation sets in documents: which are found, what is removed, what is counted."""

import pickle
from collections import Counter

import numpy as np
import pytest
import unicodedata2
from hypothesis import example, given
from hypothesis import strategies as st

from components.corpus_gen.filters.leaks import EvaluationSet, LeakFilter, LeakTable, _may_change, make_table
from components.corpus_gen.record.card import COUNTS_FILE
from components.corpus_gen.settings import CorpusSettings, LeakSettings
from components.corpus_gen.words import hash_words, words_of
from components.io.shards import read_documents, read_json
from tests.support.examples.made_documents import make_documents

# 12, 21 and 44 words.
MEDIUM = "It was the best of times, it was the worst of times."
SHORT = "Call me Ishmael. Some years ago - never mind how long precisely - having no money at all in my purse, I left."
LONG = (
    "You don't know about me without you have read a book by the name of The Adventures of Tom Sawyer; but that ain't "
    "no matter. That book was made by Mr. Mark Twain, and he told the truth, mainly. There was things."
)
AROUND = ["The sun was warm.", "", "Nobody said a word about it."]


def made(tmp_path, texts=(MEDIUM, SHORT, LONG), settings=None, others=()):
    """The filter of a set `dev.tsv` with these texts, and of one `test.tsv` with the others."""
    settings = settings or LeakSettings()
    table = make_table([EvaluationSet("dev.tsv", "1", texts), EvaluationSet("test.tsv", "2", others)], settings)
    (tmp_path / "table.npz").write_bytes(table.to_bytes())
    return LeakFilter(settings, str(tmp_path / "table.npz"))


def filtered(leaks, *lines):
    """(lines that stay, rule, found)."""
    found = Counter()
    kept, rule = leaks(list(lines), found)
    return kept, rule, found


def words_changed(text, *places):
    words = text.split()
    for place in places:
        words[place] = "other"
    return " ".join(words)


@pytest.mark.parametrize(
    "leak",
    [
        MEDIUM,
        MEDIUM.upper(),
        "It was the BÉST of times -- it was  the worst of times",
        "and he said: it was the best\nof times; it\nwas the worst\nof times",
        SHORT,
        # 13 words from the middle of a long text.
        LONG[30:104],
        LONG.replace("don't", "do n't").replace("ain't", "ai n't"),
    ],
)
def test_a_text_is_found_in_another_form(tmp_path, leak):
    _, rule, found = filtered(made(tmp_path), AROUND[0], *f"He wrote: {leak} The end.".split("\n"), AROUND[2])
    assert rule == "leak"
    assert found == {"leak_passages": 1, "leak_in dev.tsv": 1}


def test_the_treebank_s_form_of_an_evaluation_text_is_found_in_ordinary_text(tmp_path):
    text = "It 's -LRB- almost -RRB- a film that does n't lie . "
    leaks = made(tmp_path, [text])
    assert filtered(leaks, "It's (almost) a film that doesn't lie.")[1] == filtered(leaks, text)[1] == "leak"


@given(places=st.sets(st.integers(0, 20), min_size=2, max_size=2))
def test_any_two_changed_words_of_a_text_of_13_words_or_more_are_found(tmp_path_factory, places):
    leaks = made(tmp_path_factory.mktemp("leaks"))
    assert len(words_of(SHORT)) == 21
    changed = words_changed(SHORT.replace(" - ", " "), *places)
    assert filtered(leaks, f"before {changed} after")[1] == "leak"
    third = words_changed(changed, next(place for place in (3, 10, 17, 6) if place not in places))
    # The longest run of unchanged words may be long, but is below 13 words: the changes are spread.
    run = max(len(part.split()) for part in third.split("other"))
    assert (filtered(leaks, f"before {third} after")[1] == "leak") == (run >= 13)


def test_a_shorter_text_may_have_fewer_changes(tmp_path):
    leaks = made(tmp_path)
    assert len(words_of(MEDIUM)) == 12
    assert filtered(leaks, words_changed(MEDIUM, 3))[1] == "leak"
    assert filtered(leaks, words_changed(MEDIUM, 3, 9))[1] == ""


def test_what_is_no_leak(tmp_path):
    leaks = made(tmp_path)
    twelve = " ".join(LONG.split()[3:15])
    # Its second half before the first.
    rotated = " ".join(reversed(MEDIUM.split(", ")))
    for lines in (
        AROUND,
        [rotated],
        [twelve],
        [twelve, "x", " ".join(LONG.split()[20:31])],
        [MEDIUM.split(",")[0]],
        ["a"],
    ):
        assert filtered(leaks, *lines) == (list(lines), "", {})


def test_texts_of_few_words_are_not_looked_for(tmp_path):
    seven, eight = "a film that is not worth seeing", "a film that is not worth your money"
    leaks = made(tmp_path, [seven, eight])
    assert filtered(leaks, seven)[1] == "" and filtered(leaks, eight)[1] == "leak"
    assert LeakTable.read(str(tmp_path / "table.npz")).sets[0] == {
        "name": "dev.tsv",
        "sha256": "1",
        "texts": 2,
        "not_searched": 1,
        "unread": 0,
    }
    assert filtered(made(tmp_path, [seven], LeakSettings(min_words=7)), seven)[1] == "leak"


def test_letters_are_words_in_chinese(tmp_path):
    text = "黑豹队的防守只丢了308分，在联赛中排名第六。"
    leaks = made(tmp_path, [text])
    assert filtered(leaks, f"据报道，{text[:6]}", f"{text[6:]}此外还有。")[1] == "leak"
    assert filtered(leaks, "据报道，黑豹队的防守很好，在联赛中排名第五。")[1] == ""


def test_documents_are_counted_for_each_set_that_has_the_text(tmp_path):
    leaks = made(tmp_path, [MEDIUM, LONG], others=[LONG, SHORT])
    found = Counter()
    for lines in ([MEDIUM], [LONG, "and", LONG], [SHORT], AROUND):
        leaks(lines, found)
    assert found == {"leak_passages": 6, "leak_in dev.tsv": 2, "leak_in test.tsv": 2}


def test_a_table_is_the_same_bytes_and_survives_a_file(tmp_path):
    sets = [EvaluationSet("a", "1", [LONG, MEDIUM, MEDIUM.upper()]), EvaluationSet("b", "2", [])]
    content = make_table(sets, LeakSettings()).to_bytes()
    assert content == make_table(iter(sets), LeakSettings()).to_bytes()
    (tmp_path / "t").write_bytes(content)
    again = LeakTable.read(str(tmp_path / "t"))
    assert again.to_bytes() == content
    assert [one["texts"] for one in again.sets] == [2, 0]
    made_of = pickle.loads(pickle.dumps(LeakFilter(LeakSettings(), str(tmp_path / "t"))))
    assert filtered(made_of, MEDIUM)[1] == "leak"


def test_nothing_is_found_without_texts(tmp_path):
    leaks = made(tmp_path, [])
    for lines in ([], [""], [MEDIUM]):
        assert filtered(leaks, *lines) == (lines, "", {})


@given(
    settings=st.builds(LeakSettings, st.integers(9, 15), changed_words=st.integers(0, 2), min_words=st.integers(3, 20)),
    text=st.lists(st.sampled_from("abc"), max_size=45),
    document=st.lists(st.sampled_from("abc"), max_size=60),
    at=st.integers(0, 60),
    places=st.lists(st.integers(0, 44), max_size=3),
)
def test_the_search_is_exact(tmp_path_factory, settings, text, document, at, places):
    """As word by word, with words so few that almost everything repeats."""
    planted = ["d" if place in places else word for place, word in enumerate(text)]
    document[at:at] = planted
    size, length = settings.ngram_words, len(text)
    expected = False
    if length >= settings.min_words:
        for start in range(len(document) - size + 1):
            expected |= any(document[start : start + size] == text[i : i + size] for i in range(length - size + 1))
        # A longer text with so few changes has an unchanged run.
        for start in range(len(document) - length + 1):
            differ = sum(a != b for a, b in zip(document[start : start + length], text, strict=True))
            expected |= differ <= _may_change(length, settings)
    leaks = made(tmp_path_factory.mktemp("leaks"), [" ".join(text)], settings)
    assert bool(leaks.find(hash_words(" ".join(document)))) == expected


def test_hashes_of_the_table_are_sorted():
    table = make_table([EvaluationSet("a", "1", [LONG, SHORT]), EvaluationSet("b", "2", [SHORT])], LeakSettings())
    for hashes in (table.ngrams, table.seeds):
        assert (np.diff(hashes.astype(object)) >= 0).all()
    # 44 - 12 and 21 - 12 n-grams of one set, 9 of the other; three blocks of each short text.
    assert len(table.ngrams) == 32 + 9 + 9 and len(table.seeds) == 6


def test_documents_without_leaks_and_the_record_of_the_sets(tmp_path):
    made(tmp_path, [MEDIUM])
    settings = CorpusSettings(segments="lines", decontaminate=(str(tmp_path / "table.npz"),))
    paths = [tmp_path / f"{number}.txt" for number in range(9)]
    for number, path in enumerate(paths):
        path.write_text(f"one {number}\n\n{number}\n{MEDIUM.upper()}\n")
    make_documents(paths, tmp_path / "out", settings)
    kept = [document for path in (tmp_path / "out").glob("Split-*/*") for document in read_documents(str(path))]
    assert sorted(kept) == [[f"one {number}"] for number in range(9)]
    counts = read_json(f"{tmp_path}/out/{COUNTS_FILE}")
    assert counts["read"]["dropped_leak"] == 9
    assert counts["found"] == {"leak_passages": 9, "leak_in dev.tsv": 9}
    assert counts["decontaminated"][0] == {"name": "dev.tsv", "sha256": "1", "texts": 1, "not_searched": 0, "unread": 0}


@given(st.text(st.characters(max_codepoint=127)))
@example("".join(f"a{chr(c)}b{chr(c)} " for c in range(128)))
def test_ascii_words_are_those_of_the_tokenizer(text):
    assert words_of(f"{text} é") == [*words_of(text), b"e"]


def test_words_of_any_script():
    words = [word.decode() for word in words_of("Ärger, 你好！ ｔwo ไทย ひら «한국» 3€")]
    # Uncased means NFD, so Hangul is in jamo; the euro sign is not punctuation for BERT.
    assert words == [
        "arger",
        "你",
        "好",
        "ｔwo",
        "ไ",
        "ท",
        "ย",
        "ひ",
        "ら",
        unicodedata2.normalize("NFD", "한국"),
        "3€",
    ]
