"""The graph tokenizer equals the offline tokenizer, and can be saved."""

import json
import os
import random
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.tokenizers.normalize import split_words
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.tokenizers.wordpiece_graph import GraphTokenizer
from tests.support.models.graph_tokens import assert_ids, compiled, random_texts, utf8
from tests.support.models.wordpiece_rules import RULES, in_contexts

# As in test_wordpiece.py: casing context, accents, marks that are not Mn, deletion, separators, brackets.
TRICKY = (
    "aAbΑΣσςİẞ'.:-\u00ad\u0345\u02b0\u0301\u0334\u1b44\u302e\U0001d160\U0001d166\U0001d16d\u0f39"
    " \t\x0b\x00\u200d\ufffd\u2028\xa0漢가é[]"
)
CHARS = (
    "abcdefghijklmnopqrstuvwxyzABCMSKσςα.'[]éß漢\u1100\u1161가"
    "\u1b44\U0001d158\U0001d165\U0001d166\U0001d16d\U0001d16e\u302e\u0301\u0334\u02b0"
)
VOCABULARY = [*SPECIAL_TOKENS, "[X]", "ab", "##abc", *CHARS, *("##" + char for char in CHARS)]

needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


def assert_same(graph, offline, texts):
    assert_ids(graph(utf8(texts)), *offline.encode(texts), texts)


@pytest.fixture(scope="module", params=RULES)
def both(request):
    """(graph, offline) with VOCABULARY."""
    rules = RULES[request.param]
    return compiled(GraphTokenizer(VOCABULARY, **rules)), BertTokenizer(VOCABULARY, **rules)


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "uncased"])
def both_released(request):
    """(graph, offline) of bert-base-cased or bert-base-uncased."""
    name = "bert-base-uncased-vocab.txt" if request.param else "bert-base-cased-vocab.txt"
    offline = BertTokenizer.from_file(str(Path(os.environ["BERT_DATA_DIR"], "vocab", name)), request.param)
    return compiled(GraphTokenizer(offline.vocabulary, request.param)), offline


@needs_data
def test_released_vocabularies_on_questions_and_190_languages(both_released):
    folder = Path(os.environ["BERT_DATA_DIR"], "golden_tokenization")
    questions = [json.loads(line)["original"] for line in (folder / "bert_uncased_question_tokens_even.jsonl").open()]
    rows = [json.loads(line) for line in (folder / "udhr_bert_reference.jsonl").open()]
    assert (len(questions), len(rows)) == (5_397, 380)
    assert_same(*both_released, questions + [row["text"] for row in rows])
    graph, offline = both_released
    key = "uncased_ids" if offline.normalization.lower_case else "cased_ids"
    assert graph(tf.constant([row["text"] for row in rows])).to_list() == [row[key] for row in rows]


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_every_code_point_in_each_context(rules):
    """The words, so that no difference hides behind an [UNK]; both cut equal words by the same rule."""
    points = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    text = "\n".join(in_contexts(c, rules) for c in points) + "\n"
    code_points = tf.constant(np.frombuffer(text.encode("utf-32-le"), np.int32))
    words = GraphTokenizer(VOCABULARY, **rules)._split_words(code_points).texts.numpy()
    (expected,) = split_words([text], **rules)
    assert [word.decode() for word in words] == expected


def test_texts_at_random_and_none(both):
    assert_same(*both, [])
    assert_same(*both, ["", "", " ", "\u0000", "ab", "", *random_texts(TRICKY, 2000)])


def test_bytes_that_are_not_utf8_are_skipped(both):
    rng = random.Random(0)
    lead_and_follow = b"aM \x80\x9f\xa0\xbf\xc0\xc1\xc3\xcc\xce\xe0\xe6\xed\xef\xf0\xf4\xf5\xff\xa3\xa9"
    texts = [bytes(rng.choices(lead_and_follow, k=rng.randrange(12))) for _ in range(5_000)]
    expected = both[1].encode(text.decode("utf-8", "ignore") for text in texts)
    assert_ids(both[0](tf.constant(texts)), *expected, texts)


def test_batches_equal_single_texts(both):
    texts = ["ΑΣ", "Α", "a\U0001d16d", "\u1b44", "", "abc' Σ"]
    whole = both[0](tf.constant(texts)).to_list()
    assert whole == [both[0](tf.constant([text])).to_list()[0] for text in texts]


def test_words_over_200_characters_and_long_texts(both):
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgé漢.", k=rng.randrange(1, 9))) for _ in range(20_000)]
    assert_same(*both, ["a" * 200, "a" * 201, "é" * 200, "é" * 201, "e\u0301" * 150, " ".join(words)])


def test_noncharacters_are_unknown_and_never_u_fffd():
    vocabulary = [*SPECIAL_TOKENS, "a", "\ufffd", "##\ufffd", "##b"]
    assert_same(GraphTokenizer(vocabulary, True), BertTokenizer(vocabulary, True), ["a\ufdd0b", "\uffff", "a\ufffdb"])


def test_odd_vocabulary_entries():
    vocabulary = ["", "##", "b", *SPECIAL_TOKENS, "##b", "a b", "#"]
    assert_same(GraphTokenizer(vocabulary, True), BertTokenizer(vocabulary, True), ["b bb ##b a b", "#"])


@pytest.mark.parametrize("lower_case", [False, True])
def test_a_preserved_token_splits_the_text(lower_case):
    offline = BertTokenizer(VOCABULARY, lower_case)
    graph = compiled(GraphTokenizer(VOCABULARY, lower_case, preserve="[MASK]"))
    brackets = ["[MASK]", "[X]", "[", "]", "[MASK", "MASK]", "[MA\u200dSK]", "[mask]", "[SEP]"]
    others = ["Σ", "Α", "ab", " ", "\u1b44", "\U0001d16d", "é", "漢", "a" * 201]
    rng = random.Random(0)
    texts = ["".join(rng.choices(brackets + others, k=rng.randrange(9))) for _ in range(600)]
    for text, ids in zip(texts, graph(utf8(texts)).to_list(), strict=True):
        parts = re.split(r"(\[MASK\])", text)
        tokens = [[part] if odd % 2 else offline.tokenize(part) for odd, part in enumerate(parts)]
        assert [VOCABULARY[i] for i in ids] == [token for ts in tokens for token in ts], ascii(text)


def test_preserve_by_example():
    tokenizer = GraphTokenizer(VOCABULARY, True, preserve="[MASK]")
    # In the last text, canonical ordering would exchange the marks if it could see past the token.
    encoded = tokenizer(tf.constant(["ab[MASK]a [X]", "[MASK][MASK]", "\U0001d16d[MASK]\u1b44"])).to_list()
    tokens = [[VOCABULARY[i] for i in row] for row in encoded]
    assert tokens == [
        ["ab", "[MASK]", "a", "[", "x", "]"],
        ["[MASK]", "[MASK]"],
        ["\U0001d16d", "[MASK]", "\u1b44"],
    ]


def test_errors_name_the_fault():
    with pytest.raises(ValueError, match=r"lacks \[UNK\]"):
        GraphTokenizer(["[PAD]", "[CLS]", "[SEP]", "[MASK]"], True)


def test_graph_has_one_op_that_is_not_tensorflows_own():
    graph = compiled(GraphTokenizer(VOCABULARY, True, "[MASK]")).get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    ops = {node.op for node in nodes} - {function.signature.name for function in graph.library.function}
    assert {op for op in ops if not hasattr(tf.raw_ops, op)} == {"WordpieceTokenizeWithOffsets"}


def test_saved_model_needs_no_other_file(tmp_path):
    module = tf.Module()
    module.tokenizer = GraphTokenizer(VOCABULARY, True, preserve="[MASK]")
    signature = [tf.TensorSpec([None], tf.string, name="text")]
    encode = tf.function(lambda text: {"ids": module.tokenizer(text).to_tensor(-1)}, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures={"encode": encode})
    (tmp_path / "saved").rename(tmp_path / "moved")
    assert not list((tmp_path / "moved" / "assets").iterdir())
    encode = tf.saved_model.load(str(tmp_path / "moved")).signatures["encode"]
    ids = encode(text=tf.constant(["aBΣ[MASK]'", "漢"]))["ids"].numpy()
    tokens = [[VOCABULARY[i] for i in row if i >= 0] for row in ids]
    assert tokens == [["ab", "##ς", "[MASK]", "'"], ["漢"]]


LANGUAGES = {
    "Korean": ("한국어는 어렵지 않다.", ["한국어는", "어렵지", "않다", "."], "한국어는 어렵지 않다 ."),
    "Chinese": ("我爱北京。", ["我", "爱", "北", "京", "。"], "我 爱 北 京 。"),
    "Arabic": (
        "اللُّغَةُ العَرَبِيَّة، أين؟",
        ["اللُّغَةُ", "العَرَبِيَّة", "،", "أين", "؟"],
        "اللغة العربية ، اين ؟",
    ),
    "Thai": ("ภาษาไทยง่ายๆ ครับ", ["ภาษาไทยง่ายๆ", "ครับ"], "ภาษาไทยงายๆ ครบ"),
    "Hindi": ("हिन्दी भाषा है।", ["हिन्दी", "भाषा", "है", "।"], "हिनदी भाषा ह ।"),
}


def words_of(language, lower_case):
    """The words of a language's text: cased as it is written; uncased without its marks (Mn), and in NFD."""
    _, words, without_marks = LANGUAGES[language]
    return unicodedata.normalize("NFD", without_marks).split(" ") if lower_case else words


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "uncased"])
def of_languages(request):
    """(whether uncased, graph, offline) with the words of all LANGUAGES."""
    vocabulary = [*SPECIAL_TOKENS, *dict.fromkeys(word for of in LANGUAGES for word in words_of(of, request.param))]
    graph = compiled(GraphTokenizer(vocabulary, request.param))
    return request.param, graph, BertTokenizer(vocabulary, request.param)


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages(language, of_languages):
    """Only uncased, Hangul is in letters (jamo) in place of syllables."""
    lower_case, graph, offline = of_languages
    text, words = LANGUAGES[language][0], words_of(language, lower_case)
    assert any("\u1100" <= char <= "\u11ff" for word in words for char in word) == (language == "Korean" and lower_case)
    assert offline.tokenize(text) == words
    assert_same(graph, offline, [text])
