"""The offline tokenizer compared with a reference on `unicodedata`, known cases and the original's output."""

import functools
import importlib.util
import json
import os
import pickle
import re
import unicodedata
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.tokenizers import normalize
from bert_keras.tokenizers import unicode_tables as ut
from bert_keras.tokenizers.normalize import basic_tokenize
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.wordpiece_rules import RULES, in_contexts

ROOT = Path(__file__).parents[4]
IDEOGRAPHS = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f]"
)
# Where something in the rules changes: casing context, accents, marks that are not Mn, deletion, separators.
TRICKY = (
    "aAbΑΣσςİẞ'.:-\u00ad\u0345\u02b0\u0301\u0334\u1b44\u302e\U0001d160\U0001d166\U0001d16d\u0f39"
    " \t\x0b\x00\u200d\ufffd\u2028\xa0漢가é"
)

needs_same_unicode = pytest.mark.skipif(
    unicodedata.unidata_version != ut.UNICODE_VERSION,
    reason=f"the reference needs Unicode {ut.UNICODE_VERSION}, Python has {unicodedata.unidata_version}",
)
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


each_rule = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)


def reference_words(text: str, lower_case: bool, strip_accents=None, tokenize_chinese_chars=True) -> list[str]:
    """The original's BasicTokenizer as a pipeline of whole-string steps."""
    strip_accents = lower_case if strip_accents is None else strip_accents
    category = functools.cache(unicodedata.category)
    text = re.sub(r"[\t\n\r]", " ", text)
    text = "".join(c for c in text if c not in "\0\ufffd" and category(c) not in ("Cc", "Cf"))
    text = "".join(" " if category(c) == "Zs" else c for c in text)
    words = IDEOGRAPHS.sub(r" \g<0> ", text).split() if tokenize_chinese_chars else text.split()
    if lower_case:
        words = [word.lower() for word in words]
    if strip_accents:
        decomposed = unicodedata.normalize("NFD", " ".join(words))
        words = "".join(c for c in decomposed if category(c) != "Mn").split(" ")
    punctuation = re.compile(r"[!-/:-@\[-`{-~]")
    spread = (f" {c} " if punctuation.match(c) or category(c)[0] == "P" else c for c in " ".join(words))
    return "".join(spread).split()


def reference_pieces(word: str, vocabulary: frozenset[str], prefix: str = "") -> list[str]:
    """Greedy longest match; ends in None where nothing matches."""
    if not word:
        return []
    for end in range(len(word), 0, -1):
        if prefix + word[:end] in vocabulary:
            return [prefix + word[:end], *reference_pieces(word[end:], vocabulary, "##")]
    return [None]


def character_vocabulary(*texts: str) -> list[str]:
    chars = sorted(set("".join(texts)))
    return [*SPECIAL_TOKENS, *chars, *("##" + c for c in chars)]


@pytest.fixture(scope="module")
def released():
    """`released(lower_case)`: the tokenizer of bert-base-uncased or bert-base-cased."""
    folder = Path(os.environ["BERT_DATA_DIR"], "vocab")
    names = {True: "bert-base-uncased-vocab.txt", False: "bert-base-cased-vocab.txt"}
    return lambda lower_case: BertTokenizer.from_file(str(folder / names[lower_case]), lower_case)


@needs_same_unicode
@each_rule
def test_every_assigned_code_point_in_each_context(rules):
    assigned = [c for c in map(chr, range(ut.CODE_POINTS)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    others = [c for c in map(chr, range(0, ut.CODE_POINTS, 199)) if unicodedata.category(c) in ("Cn", "Co", "Cs")]
    assert len(assigned) == 144_762  # all assigned code points that are not private-use, with NUL
    for chars in (assigned, others):
        text = " 0\n".join(in_contexts(char, rules) for char in chars)  # neither words nor rules cross it
        assert basic_tokenize(text, **rules) == reference_words(text, **rules)


@needs_same_unicode
@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.one_of(st.text(TRICKY), st.text()), st.sampled_from(list(RULES.values())))
def test_random_strings_equal_the_reference(text, rules):
    assert basic_tokenize(text, **rules) == reference_words(text, **rules)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.text("".join(map(chr, range(128))), max_size=9), max_size=4), st.sampled_from(list(RULES.values())))
def test_few_ascii_characters_are_split_as_many_are(texts, rules):
    words, splits = normalize.split_chunk(texts, table := ut.fold_table(**rules))
    with mock.patch.object(normalize, "_FEW_CHARS", -1):
        words_by_numpy, splits_by_numpy = normalize.split_chunk(texts, table)
    assert (words, splits.tolist(), splits.dtype) == (words_by_numpy, splits_by_numpy.tolist(), np.int64)


@needs_same_unicode
@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.text(TRICKY + "abcab", max_size=20)), st.sampled_from(list(RULES.values())))
def test_a_batch_equals_its_texts_one_by_one(texts, rules):
    vocabulary = [
        *SPECIAL_TOKENS,
        "a",
        "ab",
        "##b",
        "##ab",
        "##ca",
        "abc",
        "é",
        "e",
        ".",
        "α",
        "##σ",
        "##ς",
        "漢",
        "b",
    ]
    tokenizer = BertTokenizer(vocabulary, **rules)
    expected = []
    for text in texts:
        pieces = [reference_pieces(word, frozenset(vocabulary)) for word in reference_words(text, **rules)]
        expected.append([piece for ps in pieces for piece in (["[UNK]"] if None in ps else ps)])
    ids, row_splits = tokenizer.encode(texts)
    assert (ids.dtype, row_splits.dtype, row_splits[0], row_splits[-1]) == (np.int32, np.int64, 0, len(ids))
    assert [[vocabulary[i] for i in row] for row in np.split(ids, row_splits[1:])[:-1]] == expected
    assert [tokenizer.tokenize(text) for text in texts] == expected


# Cases where other tokenizers differ from the original; UPPER CASE in the name: cased.
@pytest.mark.parametrize(
    ("text", "lower_case", "words"),
    [
        pytest.param("ab\x07cd", True, ["abcd"], id="control character deleted"),
        pytest.param("Straße", True, ["straße"], id="sharp s kept"),
        pytest.param("x² a… ﬁn Ⅷ", True, ["x²", "a", "…", "ﬁn", "ⅷ"], id="compatibility characters kept"),
        pytest.param("ΣΑΣ ΑΣ.Α Σ ΑΣ'", True, ["σας", "ασ", ".", "α", "σ", "ας", "'"], id="final sigma"),
        pytest.param("İI", True, ["ii"], id="dotted capital I"),
        pytest.param("café Ångström", True, ["cafe", "angstrom"], id="accents stripped"),
        pytest.param("Café", False, ["Café"], id="accents kept CASED"),
        pytest.param("a\u00a0b\u3000c\u202fd", True, ["a", "b", "c", "d"], id="Zs separates"),
        pytest.param("a\u00a0b\u3000c\u202fd", False, ["a", "b", "c", "d"], id="Zs separates CASED"),
        pytest.param("a\u2028b\u2029c", True, ["a", "b", "c"], id="Zl and Zp separate"),
        pytest.param("a\x0bb\x0cc\x1cd\x85e", True, ["abcde"], id="vertical tab, form feed and others deleted"),
        pytest.param("a\tb\nc\rd\r\ne", True, ["a", "b", "c", "d", "e"], id="tab and line ends separate"),
        pytest.param("a\0b\ufffdc\ufeffd\u200be\u00adf", False, ["abcdef"], id="NUL, U+FFFD, format deleted CASED"),
        pytest.param("x [MASK] y", True, ["x", "[", "mask", "]", "y"], id="special tokens are text"),
        pytest.param("a\ue000b\U00050000", True, ["a\ue000b\U00050000"], id="private use and unassigned kept"),
        pytest.param("a$b_c`d~e^f", True, list("a$b_c`d~e^f"), id="all ASCII punctuation"),
        pytest.param("a中文b\U00020000c", True, ["a", "中", "文", "b", "\U00020000", "c"], id="ideographs apart"),
        pytest.param("\u1fef\u037e", True, ["`", ";"], id="punctuation by decomposition"),
        pytest.param("x\U0001d16d\u0334\u1b44", True, ["x\u1b44\U0001d16d"], id="canonical order, Mn gone"),
        pytest.param("x\U0001d16d\u0301\u0e31\u1b44", True, ["x\U0001d16d\u1b44"], id="a Mn starter stops ordering"),
        pytest.param("\U0001d15f\u1b44", True, ["\U0001d158\u1b44\U0001d165"], id="marks of a composite ordered"),
        pytest.param("\ud800a", True, ["\ud800a"], id="lone surrogate kept"),
        pytest.param("", True, [], id="empty"),
        pytest.param(" \n\u0301\x00", True, [], id="nothing left"),
        pytest.param(
            "한국어 ไทยกำ हिन्दी العَرَبية",
            False,
            ["한국어", "ไทยกำ", "हिन्दी", "العَرَبية"],
            id="scripts whole CASED",
        ),
        # U+D55C = U+1112 U+1161 U+11AB; the vowel sign of "हि" is Mc, the virama Mn.
        pytest.param("한 हिन्दी", True, ["\u1112\u1161\u11ab", "हिनदी"], id="jamo, vowel signs kept, virama gone"),
    ],
)
def test_words(text, lower_case, words):
    assert basic_tokenize(text, lower_case) == words


# What only `strip_accents` and `tokenize_chinese_chars` change.
@pytest.mark.parametrize(
    ("text", "rules", "words"),
    [
        ("Möchte ÅΣ mo\u0308", RULES["lowered"], ["möchte", "åς", "mo\u0308"]),
        ("한국어 हिन्दी", RULES["lowered"], ["한국어", "हिन्दी"]),
        ("東京に行く。人ａ", RULES["lowered"], ["東京に行く", "。", "人ａ"]),
        ("東京に行く", {"lower_case": False, "strip_accents": False}, ["東", "京", "に", "行", "く"]),
        ("Möchte 東京", RULES["stripped"], ["Mochte", "東", "京"]),
        # A compatibility ideograph, which only decomposition replaces.
        ("a\uf900", {"lower_case": True, "tokenize_chinese_chars": False}, ["a\u8c48"]),
        ("a\uf900", RULES["lowered"], ["a\uf900"]),
    ],
)
def test_words_of_other_rules(text, rules, words):
    assert basic_tokenize(text, **rules) == words
    assert pickle.loads(pickle.dumps(BertTokenizer([*SPECIAL_TOKENS, *words], **rules))).tokenize(text) == words


@pytest.mark.parametrize("lower_case", [False, True])
def test_words_may_have_200_characters_of_any_bytes(lower_case):
    tokenizer = BertTokenizer(character_vocabulary("aée"), lower_case)
    for text, kept in [("a" * 150, True), ("a" * 200, True), ("a" * 201, False), ("é" * 200, True)]:
        assert len(tokenizer.tokenize(text)) == (len(text) if kept else 1)
    # Counted without accents: 300 characters are 150.
    assert len(tokenizer.tokenize("e\u0301" * 150)) == (150 if lower_case else 1)


def test_a_word_with_an_unknown_part_is_one_unk():
    tokenizer = BertTokenizer([*SPECIAL_TOKENS, "a", "##b", "##bc", "longest"], True)
    assert tokenizer.tokenize("abc abb abz a z") == ["a", "##bc", "a", "##b", "##b", "[UNK]", "a", "[UNK]"]
    assert tokenizer.tokenize("longest longestz longestb") == ["longest", "[UNK]", "longest", "##b"]


def test_special_ids_are_looked_up():
    tokenizer = BertTokenizer(["a", "[MASK]", "[SEP]", "[CLS]", "[UNK]", "[PAD]"], True)
    ids = tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    assert ids == (5, 4, 3, 2, 1)
    assert tokenizer.encode(["b a"])[0].tolist() == [4, 0]


def test_errors_name_the_fault(tmp_path):
    with pytest.raises(ValueError, match=r"lacks \[CLS\], \[MASK\]; "):
        BertTokenizer(["[PAD]", "[UNK]", "[SEP]"], True)
    with pytest.raises(ValueError, match=r"'a' twice, as ids 5 and 7"):
        BertTokenizer([*SPECIAL_TOKENS, "a", "b", "a"], True)
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n")
    with pytest.raises(ValueError, match=r"vocab.txt: .*lacks .*\[UNK\]"):
        BertTokenizer.from_file(str(path), True)
    tokenizer = BertTokenizer(SPECIAL_TOKENS, True)
    with pytest.raises(TypeError, match="found bytes"):
        tokenizer.encode(["a", b"b"])
    with pytest.raises(TypeError, match="iterable of str"):
        tokenizer.encode("a")


def test_vocabulary_file_is_stripped_and_ends_lines_only_at_line_feeds(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIAL_TOKENS, " a\u3000", "b\rc", "é"]).encode())
    assert BertTokenizer.from_file(str(path), True).vocabulary == (*SPECIAL_TOKENS, "a", "b\rc", "é")


def test_no_texts_and_empty_texts():
    tokenizer = BertTokenizer(character_vocabulary("a"), True)
    assert [part.tolist() for part in tokenizer.encode([])] == [[], [0]]
    ids, row_splits = tokenizer.encode(text for text in ["", "a", "", "\n", "a a"])
    assert (ids.tolist(), row_splits.tolist()) == ([5, 5, 5], [0, 0, 1, 1, 1, 3])


def test_a_full_cache_is_emptied_and_chunks_join(monkeypatch):
    monkeypatch.setattr("bert_keras.tokenizers.wordpiece._CACHED_WORDS", 2)
    monkeypatch.setattr("bert_keras.tokenizers.normalize._CHUNK_CHARS", 8)
    tokenizer = BertTokenizer(character_vocabulary("abcd"), True)
    texts = ["a bc", "ab ca d é", "", "abc a", "dd"]
    ids, row_splits = tokenizer.encode(texts)
    assert [tokenizer.vocabulary[i] for i in ids] == [piece for text in texts for piece in tokenizer.tokenize(text)]
    assert np.diff(row_splits).tolist() == [3, 6, 0, 4, 2]
    assert len(tokenizer._wordpieces) <= 2


def test_pickle_leaves_the_cache_behind():
    tokenizer = BertTokenizer(character_vocabulary("abc"), True)
    size = len(pickle.dumps(tokenizer))
    tokenizer.encode(["abc " * 3, "cab"])
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert len(pickle.dumps(tokenizer)) == size
    assert copy.tokenize("Abc d") == tokenizer.tokenize("Abc d") == ["a", "##b", "##c", "[UNK]"]
    assert (copy.vocabulary, copy.normalization.lower_case, copy.mask_id) == (
        tokenizer.vocabulary,
        True,
        tokenizer.mask_id,
    )


@needs_data
def test_questions_tokenized_by_the_original(released):
    path = Path(os.environ["BERT_DATA_DIR"], "golden_tokenization", "bert_uncased_question_tokens_even.jsonl")
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    assert len(rows) == 5_397
    tokenizer = released(True)
    ids, row_splits = tokenizer.encode(row["original"] for row in rows)
    for row, row_ids in zip(rows, np.split(ids, row_splits[1:-1]), strict=True):
        assert row_ids.tolist() == row["ids"]
        assert basic_tokenize(row["original"], True) == row["basic"]
        assert tokenizer.tokenize(row["original"]) == row["wordpiece"]


@needs_data
@pytest.mark.parametrize("lower_case", [False, True])
def test_190_languages_tokenized_by_the_original(released, lower_case):
    path = Path(os.environ["BERT_DATA_DIR"], "golden_tokenization", "udhr_bert_reference.jsonl")
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    assert len(rows) == 380
    key = "uncased_ids" if lower_case else "cased_ids"
    ids, row_splits = released(lower_case).encode([row["text"] for row in rows])
    for row, row_ids in zip(rows, np.split(ids, row_splits[1:-1]), strict=True):
        assert row_ids.tolist() == row[key], row["source"]


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_unicode_tables", ROOT / "scripts" / "make_unicode_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@needs_same_unicode
def test_the_script_makes_the_stored_tables(maker):
    made = maker.make_tables()
    with np.load(ut.FILE) as stored:
        assert sorted(made) == sorted(stored)
        for name, array in made.items():
            assert array.dtype == stored[name].dtype, name
            np.testing.assert_array_equal(array, stored[name], err_msg=name)


def test_the_script_refuses_other_unicode_versions(maker, monkeypatch):
    monkeypatch.setattr(unicodedata, "unidata_version", "99.0.0")
    with pytest.raises(RuntimeError, match=r"frozen at Unicode 14.0.0.*99.0.0"):
        maker.make_tables()
