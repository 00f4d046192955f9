"""New words in a vocabulary: which are chosen, where they go, and what stays."""

import numpy as np
import pytest

from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import choose_words, extend, extended_size, replaced_tokens
from bert_keras.tokenizers.wordpiece_graph import GraphTokenizer

UNUSED = ["[unused0]", "[unused1]"]
LETTERS = list("abcdef")
VOCABULARY = [*SPECIAL_TOKENS, *UNUSED, *LETTERS, *(f"##{letter}" for letter in LETTERS), "ab", "##cd"]


def tokenizer(vocabulary=VOCABULARY):
    return BertTokenizer(vocabulary, lower_case=True)


def test_new_words_take_unused_places_first_and_old_ids_stay():
    extended = extend(VOCABULARY, ["abc", "abd", "abe"])
    assert len(extended) == extended_size(VOCABULARY, 3) == len(VOCABULARY) + 1
    assert [extended[5], extended[6], extended[-1]] == ["abc", "abd", "abe"]
    assert [token for i, token in enumerate(extended[:-1]) if i not in (5, 6)] == [*SPECIAL_TOKENS, *VOCABULARY[7:]]
    assert extended_size(VOCABULARY, 1) == len(VOCABULARY)


def test_text_without_new_words_has_the_same_ids_offline_and_in_the_graph():
    texts = ["ab cd, ef", "fedcba", "xyz a b ##c"]
    extended = extend(VOCABULARY, ["abcdef", "bbb", "ccc"])
    before, after = tokenizer().encode(texts), tokenizer(extended).encode(texts)
    assert [part.tolist() for part in before] == [part.tolist() for part in after]
    texts.append("abcdef bbb abcdefa bbbb ccc")
    ids, splits = tokenizer(extended).encode(texts)
    in_graph = GraphTokenizer(extended, True)(texts)
    assert in_graph.flat_values.numpy().tolist() == ids.tolist()
    assert in_graph.row_splits.numpy().tolist() == splits.tolist()
    assert [extended[i] for i in ids[splits[-2] :]] == ["abcdef", "bbb", "abcdef", "##a", "bbb", "##b", "ccc"]


def test_new_tokens_replace_the_tokens_of_the_old_vocabulary():
    extended = extend(VOCABULARY, ["abcd", "abf", "fcd"])
    names = {extended[new]: [VOCABULARY[i] for i in old] for new, old in replaced_tokens(tokenizer(), extended).items()}
    assert names == {"abcd": ["ab", "##cd"], "abf": ["ab", "##f"], "fcd": ["f", "##cd"]}
    assert replaced_tokens(tokenizer(), VOCABULARY) == {}


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([*VOCABULARY[:7], "z", *VOCABULARY[8:]], "token 7 is 'z', not 'a'"),
        (VOCABULARY[:-1], f"it has {len(VOCABULARY) - 1} tokens, not {len(VOCABULARY)}"),
    ],
)
def test_another_vocabulary_is_refused(tokens, message):
    with pytest.raises(ValueError, match=message):
        replaced_tokens(tokenizer(), tokens)


def test_the_words_that_save_most_tokens_are_chosen():
    # Tokens saved: 3 * 4, 9 * 1, 2 * 5; "ab" is a token, "xyz" is unknown.
    counts = {"aabbe": 3, "abc": 9, "fffffe": 2, "ab": 1000, "xyz": 1000}
    assert choose_words(counts, tokenizer(), 2) == ["aabbe", "fffffe"]
    assert choose_words(counts, tokenizer(), 9) == ["aabbe", "fffffe", "abc"]
    assert choose_words(dict(reversed(counts.items())), tokenizer(), 9) == ["aabbe", "fffffe", "abc"]


def test_a_word_that_a_chosen_word_shortens_is_weighed_again():
    # "fffff" saves 4 * 10 tokens; after it "fffffe" saves only 1 * 9 and "eee" more, 2 * 5.
    counts = {"fffff": 10, "fffffe": 9, "eee": 5, "ee": 1}
    assert choose_words(counts, tokenizer(), 4) == ["fffffe", "fffff", "eee", "ee"]
    counts["fffffe"] = 7
    assert choose_words(counts, tokenizer(), 4) == ["fffff", "eee", "fffffe", "ee"]


def test_the_chosen_words_shorten_their_text_by_what_they_save():
    generator = np.random.default_rng(7)
    words = ["".join(generator.choice(LETTERS, size=generator.integers(2, 7))) for _ in range(400)]
    counts = {word: words.count(word) for word in words}
    old = tokenizer()
    new = tokenizer(extend(VOCABULARY, choose_words(counts, old, 30)))
    assert len(new.encode([" ".join(words)])[0]) < 0.95 * len(old.encode([" ".join(words)])[0])
