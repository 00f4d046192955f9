"""Offsets of wordpieces: by example, and compared with a slow reference."""

import json
import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.tokenizers import wordpiece_offsets as module
from bert_keras.tokenizers.normalize import basic_tokenize
from bert_keras.tokenizers.unicode_tables import Normalization
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.tokenizers.wordpiece_graph import GraphTokenizer
from bert_keras.tokenizers.wordpiece_offsets import encode_with_offsets
from tests.support.models.graph_tokens import assert_tokens, compiled, random_texts, utf8
from tests.support.models.wordpiece_rules import RULES

CHARS = "abcdefis.,'-[]#éß漢\u1100\u1161\u11ab가σςα\u1b44\U0001d158\U0001d165\U0001d16d\u302e\u0301\u02b0i\u0307"
VOCABULARY = list(dict.fromkeys([*SPECIAL_TOKENS, "caf", "ab", "##abc", *CHARS, *("##" + char for char in CHARS)]))
# Accents, deleted characters, white space, ideographs, what becomes several, marks that change places, unknown letters.
TRICKY = (
    "aAbcfeÉés.'-[#\u00ad\u0301\u0323\u0345\u1b44\u302e\U0001d165\U0001d16d\u200d\ufffd\x00\x01 \n\u202f\xa0漢가İΣqĳ"
)
each_rule = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


def pieces(text, lower_case=True, vocabulary=VOCABULARY, **further):
    """(token, its part of the text)."""
    encoded = encode_with_offsets(BertTokenizer(vocabulary, lower_case, **further), [text])
    places = zip(encoded.ids, encoded.starts, encoded.ends, strict=True)
    return [(vocabulary[piece], text[start:end]) for piece, start, end in places]


def test_pieces_of_words_signs_and_ideographs():
    assert pieces(" Café-s 漢b, ") == [
        ("caf", "Caf"), ("##e", "é"), ("-", "-"), ("s", "s"), ("漢", "漢"), ("b", "b"), (",", ",")
    ]  # fmt: skip


def test_an_accent_that_is_stripped_belongs_to_the_letter_before():
    assert pieces("Cafe\u0301\u0323 s") == [("caf", "Caf"), ("##e", "e\u0301\u0323"), ("s", "s")]
    # Where nothing is stripped it is a character like others.
    for rules in ({"lower_case": False}, {"lower_case": True, "strip_accents": False}):
        assert pieces("e\u0301", **rules) == [("e", "e"), ("##\u0301", "\u0301")]
    # At the beginning there is no letter, and none takes what belongs to white space.
    assert pieces("\u0301a \u0301b") == [("a", "a"), ("b", "b")]


def test_other_deleted_characters_may_only_lie_inside():
    assert pieces("\u200dc\u00adaf\u200d") == [("caf", "c\u00adaf")]
    assert pieces("e\u200d\u0301\u200d") == [("e", "e\u200d\u0301")]


def test_a_character_may_belong_to_several_tokens():
    assert pieces("가e") == [("\u1100", "가"), ("##\u1161", "가"), ("##e", "e")]
    assert pieces("İ") == [("i", "İ")]


def test_unknown_and_overlong_words_are_one_token():
    assert pieces("aqa, q") == [("[UNK]", "aqa"), (",", ","), ("[UNK]", "q")]
    assert pieces("a" * 201 + ".") == [("[UNK]", "a" * 201), (".", ".")]


def test_reordered_marks_keep_their_offsets():
    # U+1D165 (class 216) goes before U+302E (224), though it is written behind.
    assert basic_tokenize("a\u302e\U0001d165", True) == ["a\U0001d165\u302e"]
    assert pieces("a\u302e\U0001d165") == [("a", "a"), ("##\U0001d165", "\U0001d165"), ("##\u302e", "\u302e")]


def folded(char, rules):
    """A single character, normalized."""
    return "".join(basic_tokenize(char, **rules.fields))


def reference_places(text, tokenizer):
    """Starts and ends of pieces, a character after the other; texts without sigmas and marks that move."""
    letters, ends = [], {}
    for place, char in enumerate(text):
        rest = folded(char, tokenizer.normalization)
        letters += [place] * len(rest)
        if rest or not folded(char, Normalization(False)):
            if rest or char.isspace():
                last = place
                ends[place] = place + 1
        elif ends and tokenizer.normalization.strip_accents:
            ends[last] = place + 1
    starts_ends = []
    words = iter(basic_tokenize(text, **tokenizer.normalization.fields))
    for word in words:
        tokens = tokenizer.tokenize(word)
        assert "".join(tokens).replace("##", "") == word or tokens == ["[UNK]"] or "#" in word
        for token in tokens:
            size = len(word) if token == "[UNK]" else len(token.removeprefix("##"))
            taken, letters = letters[:size], letters[size:]
            starts_ends.append((taken[0], ends[taken[-1]]))
    assert not letters
    return starts_ends


MOVING = {c for c in map(chr, range(0x110000)) if unicodedata.combining(c) and unicodedata.category(c) != "Mn"}


@each_rule
def test_offsets_equal_a_slow_reference(rules):
    tokenizer = BertTokenizer(VOCABULARY, **rules)
    texts = [text for text in random_texts(TRICKY, 1000) if not MOVING & set(unicodedata.normalize("NFD", text))]
    assert len(texts) > 400
    encoded = encode_with_offsets(tokenizer, texts)
    ids, row_splits = tokenizer.encode(texts)
    np.testing.assert_array_equal(encoded.ids, ids)
    np.testing.assert_array_equal(encoded.row_splits, row_splits)
    places = np.split(np.stack([encoded.starts, encoded.ends], 1), row_splits[1:])[:-1]
    for text, found in zip(texts, places, strict=True):
        assert list(map(tuple, found.tolist())) == reference_places(text, tokenizer), ascii(text)


def graph_function(tokenizer):
    return compiled(GraphTokenizer(tokenizer.vocabulary, **tokenizer.normalization.fields).with_offsets)


@each_rule
def test_the_graph_has_the_same_offsets(rules):
    tokenizer = BertTokenizer(VOCABULARY, **rules)
    graph = graph_function(tokenizer)
    examples = ["", "\u0301", " ", "a\u302e\U0001d165", "a" * 201 + ".", "\uffff b"]
    for texts in ([], [*examples, *random_texts(TRICKY, 1500)]):
        assert_tokens(graph(utf8(texts)), encode_with_offsets(tokenizer, texts), texts)


def test_the_graph_counts_in_the_text_without_bytes_that_are_not_utf8():
    written = b"\xff\xc3 a\xc3b\xffe\xcc\x81\xff ."
    found, text = (
        graph_function(BertTokenizer(VOCABULARY, True))(tf.constant([written])),
        written.decode("utf-8", "ignore"),
    )
    assert [text[s:e] for s, e in zip(found.starts.numpy(), found.ends.numpy(), strict=True)] == ["ab", "e\u0301", "."]
    assert found.byte_starts.numpy().tolist() == [3, 7, 12]
    assert found.byte_ends.numpy().tolist() == [6, 10, 13]


@needs_data
def test_190_languages():
    """Every piece's text is folded to the piece, where it is alone; chunks join."""
    folder = Path(os.environ["BERT_DATA_DIR"])
    lines = (folder / "golden_tokenization/udhr_bert_reference.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    tokenizer = BertTokenizer.from_file(str(folder / "vocab/bert-base-uncased-vocab.txt"), True)
    encoded = encode_with_offsets(tokenizer, texts)
    assert_tokens(graph_function(tokenizer)(utf8(texts)), encoded, texts)
    row = np.repeat(np.arange(len(texts)), np.diff(encoded.row_splits))
    wrong = 0
    for text, piece, start, end in zip(row, encoded.ids, encoded.starts, encoded.ends, strict=True):
        token = tokenizer.vocabulary[piece]
        wrong += token != "[UNK]" and "".join(basic_tokenize(texts[text][start:end], True)) != token.removeprefix("##")
    assert wrong == 0


def test_a_str_is_refused():
    with pytest.raises(TypeError, match="iterable of str"):
        encode_with_offsets(BertTokenizer(VOCABULARY, True), "text")
    assert module.token_lengths(["[UNK]", "ab", "##abc"]).tolist() == [5, 2, 3]
