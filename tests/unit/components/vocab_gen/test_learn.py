"""Learning a vocabulary from word counts: order, size, errors, determinism."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy
import pytest

from bert_keras.errors import InputError
from bert_keras.tokenizers import byte_bpe
from bert_keras.tokenizers.byte_bpe import byte_alphabet
from bert_keras.tokenizers.normalize import split_words
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer, make_tokenizer
from components.vocab_gen import learn
from components.vocab_gen.learn import learn_byte_bpe, learn_wordpiece, least_count
from components.vocab_gen.settings import VocabularySettings

ALL_WORDS = VocabularySettings(min_word_count=1)


def make_counts():
    """3000 words with many ties: few distinct counts, tokens of equal frequency."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyzäöü"
    return {"".join(rng.choices(letters, k=rng.randint(1, 9))): rng.randint(1, 4) for _ in range(3000)}


def test_a_vocabulary_by_hand():
    # Pairs: h ##u 15, ##u ##g 20, p ##u 17, ##u ##n 16, b ##u 4, ##g ##s 5. The most frequent is merged first,
    # ##u ##g; then ##u ##n 16, h ##ug 15, p ##un 12.
    counts = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
    alphabet, inside = ["b", "g", "h", "n", "p", "s", "u"], ["##g", "##n", "##s", "##u"]
    expected = [*SPECIAL_TOKENS, *alphabet, *inside, "##ug", "##un", "hug", "pun"]
    assert learn_wordpiece(counts, len(expected), ALL_WORDS, exact=True) == expected


def test_ties_do_not_depend_on_the_process():
    """The library numbers tokens in the order of a hash map, with a new seed for every training."""
    code = (
        "from tests.unit.components.vocab_gen.test_learn import *; "
        "print(hashlib.sha256(repr(learn_wordpiece(make_counts(), 900, ALL_WORDS, exact=True)).encode()).hexdigest())"
    )
    seeded = {**os.environ, "PYTHONHASHSEED": "1"}
    elsewhere = subprocess.run([sys.executable, "-c", code], env=seeded, capture_output=True, text=True, check=True)
    here = {
        hashlib.sha256(repr(learn_wordpiece(make_counts(), 900, ALL_WORDS, exact=True)).encode()).hexdigest()
        for _ in range(2)
    }
    assert here == {elsewhere.stdout.strip()}


def test_the_order_of_the_counts_does_not_matter():
    counts = make_counts()
    shuffled = dict(random.Random(1).sample(sorted(counts.items()), len(counts)))
    assert learn_wordpiece(shuffled, 500, ALL_WORDS, exact=True) == learn_wordpiece(counts, 500, ALL_WORDS, exact=True)


def test_every_word_can_be_tokenized():
    counts = make_counts()
    vocabulary = learn_wordpiece(counts, 500, ALL_WORDS, exact=True)
    assert len(vocabulary) == len(set(vocabulary)) == 500
    tokenizer = BertTokenizer(vocabulary, lower_case=False)
    ids, row_splits = tokenizer.encode(counts)
    assert len(row_splits) == len(counts) + 1 and tokenizer.unk_id not in ids


def test_rare_words_and_rare_characters_are_not_learned_from():
    counts = {"aa": 3, "ab": 2, "zz": 1, "aé": 2}
    # "zz" is too rare. Of 14 characters a (10) and b (2) are more than 80 %, a alone is not; so "aé" goes too.
    settings = VocabularySettings(min_word_count=2, character_coverage=0.8)
    assert learn_wordpiece(counts, 11, settings, exact=True) == [*SPECIAL_TOKENS, "a", "b", "##a", "##b", "aa", "ab"]


def test_ties_between_characters_are_broken_by_code_point():
    settings = VocabularySettings(min_word_count=1, character_coverage=0.6)
    assert learn_wordpiece({"c": 1, "b": 1, "a": 1}, 7, settings, exact=True) == [*SPECIAL_TOKENS, "a", "b"]


def test_more_than_the_corpus_supports():
    counts = {"ab": 2, "ac": 2}
    # Five special tokens, a b c, ##b ##c, ab ac.
    assert len(learn_wordpiece(counts, 12, ALL_WORDS, exact=True)) == 12
    with pytest.raises(InputError) as caught:
        learn_wordpiece(counts, 13, ALL_WORDS, exact=True)
    assert str(caught.value) == (
        "the corpus supports a vocabulary of 12 tokens (2 distinct words), but vocab_size is 13: "
        "give more text, or --set model.vocab_size=12 or less"
    )


def test_fewer_tokens_than_characters_are_refused():
    counts = {"ab": 2, "ac": 2}
    assert len(learn_wordpiece(counts, 10, ALL_WORDS, exact=True)) == 10
    with pytest.raises(InputError) as caught:
        learn_wordpiece(counts, 9, ALL_WORDS, exact=True)
    assert str(caught.value) == (
        "the corpus needs a vocabulary of 10 tokens for its 3 characters alone, but vocab_size is 9: "
        "--set model.vocab_size=10 (--vocab-size of bert-tfx examples) or more, or a smaller "
        "vocabulary.character_coverage"
    )


def test_a_large_corpus_is_scaled_down(monkeypatch):
    monkeypatch.setattr(learn, "MAX_WORDS_SHOWN", 100)
    monkeypatch.setattr(learn, "WORDS_A_LINE", 30)
    lines = list(learn._lines({"often": 700, "seldom": 299, "once": 1}))
    assert [len(line.split()) for line in lines] == [30, 30, 10, 30, 1]
    monkeypatch.setattr(learn, "MAX_WORDS_SHOWN", 2000)
    assert sum(len(line.split()) for line in learn._lines({"often": 700, "seldom": 299, "once": 1})) == 1000


def test_words_that_would_be_shown_less_than_half_a_time_are_dropped(monkeypatch):
    counts = {word: count for word, count in make_counts().items() if word.isascii()}
    rng = random.Random(1)
    rare = {"".join(rng.choices("abcdefgh", k=8)): rng.randint(1, 20) for _ in range(5_000)}
    often = {word: 1000 * count for word, count in counts.items()}
    large = {**rare, **often}
    # A thousandth is shown. The rare words are 1.4 % of the text; shown once each, they would be more than the others.
    monkeypatch.setattr(learn, "MAX_WORDS_SHOWN", sum(counts.values()))
    assert 0.01 < 1 - sum(often.values()) / sum(large.values()) < 0.02
    for learned in (learn_wordpiece, learn_byte_bpe):
        assert learned(large, 900, ALL_WORDS, exact=True) == learned(counts, 900, ALL_WORDS, exact=True)


def test_the_least_count_grows_with_the_text():
    assert least_count(200_000_000, VocabularySettings()) == 2
    assert least_count(200_000_001, VocabularySettings()) == 3
    assert least_count(30_000_000_000, VocabularySettings()) == 300
    assert least_count(30_000_000_000, VocabularySettings(min_word_count=500)) == 500
    assert least_count(0, ALL_WORDS) == 1


def test_a_smaller_vocabulary_is_allowed_unless_exact():
    counts = {"ab": 2, "ac": 2}
    assert learn_wordpiece(counts, 500, ALL_WORDS, exact=False) == learn_wordpiece(counts, 12, ALL_WORDS, exact=True)


def test_full_character_coverage():
    counts = {"a": 1_000_000, "é": 1}
    assert "é" not in learn_wordpiece(counts, 6, VocabularySettings(min_word_count=1), exact=True)
    everything = VocabularySettings(min_word_count=1, character_coverage=1.0)
    assert learn_wordpiece(counts, 7, everything, exact=True)[5:] == ["a", "é"]


def test_fertility_equals_the_librarys_own_training():
    """Tokens per word on held-out text, within 2 % of BertWordPieceTokenizer's at the same size on the same text."""
    from tokenizers import BertWordPieceTokenizer

    from pipeline.examples.demo_corpus import docstrings

    site_packages = Path(numpy.__file__).parents[1]
    texts = [t for p in sorted((site_packages / "numpy").rglob("*.py"))[:300] for t in docstrings(p).values()]
    train, held_out = texts[::2], texts[1::2]
    for lower_case in (True, False):
        settings = VocabularySettings(lower_case=lower_case)
        counts = Counter(word for words in split_words(train, lower_case) for word in words)
        ours = make_tokenizer(learn_wordpiece(counts, 3000, settings, exact=True), {**vars(settings)})
        library = BertWordPieceTokenizer(lowercase=lower_case, strip_accents=lower_case)
        library.train_from_iterator(train, vocab_size=3000, show_progress=False)
        words = sum(len(words) for words in split_words(held_out, lower_case))
        fertility = len(ours.encode(held_out)[0]) / words
        theirs = sum(len(e.ids) for e in library.encode_batch(held_out, add_special_tokens=False)) / words
        assert len(held_out) > 100 and 1.05 < theirs < 2
        assert fertility == pytest.approx(theirs, rel=0.02)


# Byte-level BPE.


def test_bpe_by_hand():
    counts = {"Ġhug": 10, "Ġpug": 5, "hugs": 3}
    vocabulary, merges = learn_byte_bpe(counts, 5 + 256 + 3, ALL_WORDS, exact=True)
    assert vocabulary[:5] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert vocabulary[5:261] == byte_alphabet()
    # u g 18; then h ug 13; then Ġ hug 10.
    assert merges == [("u", "g"), ("h", "ug"), ("Ġ", "hug")] and vocabulary[261:] == ["ug", "hug", "Ġhug"]


def test_bpe_is_deterministic():
    counts = {f"Ġ{word}": count for word, count in make_counts().items() if word.isascii()}
    shuffled = dict(random.Random(1).sample(sorted(counts.items()), len(counts)))
    first = learn_byte_bpe(counts, 600, ALL_WORDS, exact=True)
    assert all(learn_byte_bpe(shuffled, 600, ALL_WORDS, exact=True) == first for _ in range(3))


def test_bpe_learns_the_librarys_merges_from_the_same_text():
    """`tokenizers.trainers.BpeTrainer` with GPT-2's words, each of them, also those that occur once."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = [f"The {word} of the {word[::-1]}s, {number}中文的 it's" for number, word in enumerate(make_counts())]
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(texts, trainer)
    theirs = [tuple(merge) for merge in json.loads(library.to_str())["model"]["merges"]]
    counts = Counter(byte_bpe.words(texts))
    _, ours = learn_byte_bpe(counts, 905, VocabularySettings("byte_bpe", min_word_count=100), exact=True)
    assert ours == theirs and len(ours) == 900 - 256


def test_a_sample_has_the_frequent_words_and_the_total_of_the_others():
    counts = {f"rare {number}": 1 + number % 9 for number in range(9000)} | {"often": 1000}
    drawn = dict(learn.sample(counts, 10))
    assert drawn.pop("often") == 1000 and set(drawn.values()) == {10}
    assert len(drawn) == pytest.approx(sum(range(1, 10)) * 1000 / 10, rel=0.03)
    assert dict(learn.sample(counts, 1)) == counts
    other = dict(learn.sample(counts, 10, "another shard"))
    assert 0.2 < len(drawn.keys() & other.keys()) / len(drawn) < 0.8


def test_what_the_trainer_of_bpe_has_no_time_or_memory_for(monkeypatch):
    monkeypatch.setattr(learn, "MAX_WORD_BYTES", 3)
    assert learn_byte_bpe({"abcabca": 2}, 263, ALL_WORDS, exact=True)[1] == [("a", "b"), ("ab", "c")]
    monkeypatch.setattr(learn, "MAX_BYTES_LEARNED", 200)
    bounded = learn._bounded({f"{number:03}": 1 for number in range(1000)} | {"the": 1000})
    assert bounded.pop("the") == 1000 and set(bounded.values()) == {16} and 30 < len(bounded) < 100


def test_bpe_refuses_impossible_sizes():
    with pytest.raises(InputError, match="at least 261 tokens for its bytes, but vocab_size is 260"):
        learn_byte_bpe({"ab": 2}, 260, ALL_WORDS, exact=True)
    with pytest.raises(InputError, match=r"supports a vocabulary of 262 tokens .*vocab_size is 263"):
        learn_byte_bpe({"ab": 2}, 263, ALL_WORDS, exact=True)
    assert len(learn_byte_bpe({"ab": 2}, 263, ALL_WORDS, exact=False)[0]) == 262
