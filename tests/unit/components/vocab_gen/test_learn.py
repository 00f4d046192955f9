"""Word counts to a vocabulary: its order, its size, its refusals, and the same one every time."""

import hashlib
import os
import random
import subprocess
import sys

import pytest

from bert_keras.errors import InputError
from bert_keras.tokenizer import SPECIAL_TOKENS, BertTokenizer
from components.vocab_gen import learn
from components.vocab_gen.learn import learn_wordpiece
from components.vocab_gen.settings import VocabularySettings

ALL_WORDS = VocabularySettings(min_word_count=1)


def make_counts():
    """3000 words with many ties: few distinct counts, pieces that are equally frequent."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyzäöü"
    return {"".join(rng.choices(letters, k=rng.randint(1, 9))): rng.randint(1, 4) for _ in range(3000)}


def test_a_vocabulary_by_hand():
    # Pairs: h ##u 15, ##u ##g 20, p ##u 17, ##u ##n 16, b ##u 4, ##g ##s 5. The first merge takes the commonest,
    # ##u ##g; then ##u ##n 16, h ##ug 15, p ##un 12.
    counts = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
    alphabet, inside = ["b", "g", "h", "n", "p", "s", "u"], ["##g", "##n", "##s", "##u"]
    expected = [*SPECIAL_TOKENS, *alphabet, *inside, "##ug", "##un", "hug", "pun"]
    assert learn_wordpiece(counts, len(expected), ALL_WORDS) == expected


def test_ties_do_not_depend_on_the_process():
    """The library numbers pieces in the order of a hash map, seeded anew for every training."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_learn import *; "
        "print(hashlib.sha256(repr(learn_wordpiece(make_counts(), 900, ALL_WORDS)).encode()).hexdigest())"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", code, os.path.dirname(__file__)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    ]
    here = [hashlib.sha256(repr(learn_wordpiece(make_counts(), 900, ALL_WORDS)).encode()).hexdigest() for _ in range(3)]
    assert set(digests) == set(here) and len(set(here)) == 1


def test_the_order_of_the_counts_does_not_matter():
    counts = make_counts()
    shuffled = dict(random.Random(1).sample(sorted(counts.items()), len(counts)))
    assert learn_wordpiece(shuffled, 500, ALL_WORDS) == learn_wordpiece(counts, 500, ALL_WORDS)


def test_every_word_can_be_written():
    counts = make_counts()
    vocabulary = learn_wordpiece(counts, 500, ALL_WORDS)
    assert len(vocabulary) == len(set(vocabulary)) == 500
    tokenizer = BertTokenizer(vocabulary, lower_case=False)
    ids, row_splits = tokenizer.encode(counts)
    assert len(row_splits) == len(counts) + 1 and tokenizer.unk_id not in ids


def test_rare_words_and_rare_characters_are_not_learned_from():
    counts = {"aa": 3, "ab": 2, "zz": 1, "aé": 2}
    # "zz" is too rare, "é" the third character of three, so "aé" goes too.
    settings = VocabularySettings(min_word_count=2, max_alphabet=2)
    assert learn_wordpiece(counts, 11, settings) == [*SPECIAL_TOKENS, "a", "b", "##a", "##b", "aa", "ab"]


def test_equally_frequent_characters_go_by_code_point():
    settings = VocabularySettings(min_word_count=1, max_alphabet=2)
    assert learn_wordpiece({"c": 1, "b": 1, "a": 1}, 7, settings) == [*SPECIAL_TOKENS, "a", "b"]


def test_chinese():
    vocabulary = learn_wordpiece({"中": 5, "文": 3}, 7, VocabularySettings())
    assert vocabulary == [*SPECIAL_TOKENS, "中", "文"]


def test_more_than_the_corpus_supports():
    counts = {"ab": 2, "ac": 2}
    # Five special tokens, a b c, ##b ##c, ab ac.
    assert len(learn_wordpiece(counts, 12, ALL_WORDS)) == 12
    with pytest.raises(InputError) as caught:
        learn_wordpiece(counts, 13, ALL_WORDS)
    assert str(caught.value) == (
        "the corpus supports a vocabulary of 12 tokens (2 distinct words), 13 were asked for: "
        "give more text, or --set model.vocab_size=12 or less"
    )


def test_no_words_at_all():
    with pytest.raises(InputError, match=r"supports a vocabulary of 5 tokens \(0 distinct words\)"):
        learn_wordpiece({}, 100, ALL_WORDS)


def test_fewer_than_the_characters():
    counts = {"ab": 2, "ac": 2}
    assert len(learn_wordpiece(counts, 10, ALL_WORDS)) == 10
    with pytest.raises(InputError) as caught:
        learn_wordpiece(counts, 9, ALL_WORDS)
    assert str(caught.value) == (
        "the corpus needs a vocabulary of 10 tokens for its 3 characters alone, 9 were asked for: "
        "--set model.vocab_size=10 or more, or a smaller vocabulary.max_alphabet"
    )


def test_a_large_corpus_is_scaled_down(monkeypatch):
    monkeypatch.setattr(learn, "MAX_WORDS_SHOWN", 100)
    monkeypatch.setattr(learn, "WORDS_A_LINE", 30)
    lines = list(learn._lines({"often": 700, "seldom": 299, "once": 1}))
    assert [len(line.split()) for line in lines] == [30, 30, 10, 30, 1]
    monkeypatch.setattr(learn, "MAX_WORDS_SHOWN", 2000)
    assert sum(len(line.split()) for line in learn._lines({"often": 700, "seldom": 299, "once": 1})) == 1000


@pytest.mark.parametrize("name", ["min_word_count", "max_alphabet"])
def test_settings_out_of_range(name):
    with pytest.raises(ValueError, match=f"vocabulary.{name} is 0"):
        VocabularySettings(**{name: 0})
