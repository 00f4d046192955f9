"""Byte-level BPE in a graph equals the offline tokenizer, the `tokenizers` library's, in tokens and offsets."""

import json
import os
import random
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from bert_keras.tokenizers import byte_bpe_graph
from bert_keras.tokenizers.byte_bpe import (
    SPECIAL_TOKENS,
    ByteBpeTokenizer,
    byte_alphabet,
    byte_characters,
    character_classes,
)
from bert_keras.tokenizers.byte_bpe_graph import GraphByteBpe
from tests.support.models.graph_tokens import assert_tokens, compiled, random_texts, utf8
from tests.support.models.tiny_byte_bpe import SENTENCES, TEXTS, TRICKY, tiny_byte_bpe

TOKENIZER = tiny_byte_bpe()
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


@pytest.fixture(scope="module")
def graph():
    return with_offsets(TOKENIZER)


def with_offsets(tokenizer):
    return compiled(GraphByteBpe(tokenizer).with_offsets)


def byte_bpe(merges):
    merged = ["".join(pair) for pair in merges]
    return ByteBpeTokenizer(list(dict.fromkeys([*SPECIAL_TOKENS, *byte_alphabet(), *merged])), merges)


def assert_same(graph, texts, tokenizer=TOKENIZER):
    assert_tokens(graph(utf8(texts)), tokenizer.encode_with_offsets(texts), texts)


def test_a_mask_takes_the_white_space_before_it():
    """As `transformers` has it for RoBERTa: <mask> is an added token with `lstrip`, in the `tokenizers` library."""
    theirs = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(TOKENIZER.vocabulary)}, merges=[*TOKENIZER.merges]))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    rng = random.Random(0)
    texts = [
        "the <mask> sat on the <mask>.",
        "<mask>",
        " <mask> <mask><mask>  <mask>",
        "the<mask>cat \t\n\xa0\u2003\u3000\x85\x0b<mask> \u2028 house<mask>  ",
        "no mask here ",
        "",
        "<mask >< mask> <mask",
        *("".join(rng.choice(["<mask>", *TRICKY]) for _ in range(8)) for _ in range(100)),
        *("<mask>".join(rng.sample(random_texts(TRICKY, 100), 3)) for _ in range(100)),
    ]
    found = compiled(GraphByteBpe(TOKENIZER).with_masks)(utf8(texts))
    expected = theirs.encode_batch(texts, add_special_tokens=False)
    assert found.dtype == tf.int32
    for text, ids, encoding in zip(texts, found.to_list(), expected, strict=True):
        assert ids == encoding.ids, ascii(text)


def test_texts_by_example_and_at_random(graph):
    assert_same(graph, [])
    assert_same(graph, [*TEXTS, *SENTENCES, *random_texts(TRICKY, 2000)])


def test_each_end_of_a_class_of_characters(graph):
    classes = character_classes()
    ends = np.flatnonzero(np.diff(classes))
    points = [chr(c) for c in sorted({*ends, *(ends + 1)}) if not 0xD800 <= c <= 0xDFFF]
    assert len(points) > 1500
    assert_same(graph, [f"a{c}1{c} {c}a\n{c}  {c}" for c in points])


def test_bytes_that_are_not_utf8_are_skipped(graph):
    rng = random.Random(0)
    lead_and_follow = b"aM '\x80\x9f\xa0\xbf\xc0\xc1\xc3\xcc\xce\xe0\xe6\xed\xef\xf0\xf4\xf5\xff\xa3\xa9"
    texts = [bytes(rng.choices(lead_and_follow, k=rng.randrange(12))) for _ in range(5_000)]
    expected = TOKENIZER.encode_with_offsets(text.decode("utf-8", "ignore") for text in texts)
    found = graph(tf.constant(texts))
    for ours, theirs in zip((found.ids.values, found.ids.row_splits, *found[1:3]), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    (one,) = graph(tf.constant([b"\xff\xc3 a\xc3t \xffmat\xff"])).ids.to_list()
    assert one == TOKENIZER.encode([" at mat"])[0].tolist()


def test_pairs_that_share_a_symbol_are_merged_from_the_left():
    tokenizer = byte_bpe([("a", "a"), ("aa", "a"), ("aa", "aa"), ("aaaa", "aa")])
    assert_same(with_offsets(tokenizer), ["a" * n for n in range(20)], tokenizer)
    assert tokenizer.tokenize("a" * 5) == ["aa", "aaa"]


def test_a_batch_equals_its_texts_and_a_vocabulary_may_have_no_merges(graph):
    assert graph(utf8(TEXTS)).ids.to_list() == [graph(utf8([text])).ids.to_list()[0] for text in TEXTS]
    bare = byte_bpe([])
    assert_same(with_offsets(bare), TEXTS, bare)


def test_words_have_a_space_before_them():
    words = ["The", "l'été", "'s", "\u200b", "漢字", "1600"]
    found = GraphByteBpe(TOKENIZER).encode_words(tf.strings.unicode_decode(tf.constant(words), "UTF-8"))
    ids, splits = TOKENIZER.encode_words(words)
    np.testing.assert_array_equal(found.values, ids)
    np.testing.assert_array_equal(found.row_splits, splits)
    assert all(TOKENIZER.vocabulary[ids[begin]].startswith("Ġ") for begin in splits[:-1])


def test_the_graph_has_ops_of_tensorflow_alone():
    """A model whose vocabulary is in the graph is loaded by objectives/test_byte_bpe.py."""
    graph = compiled(GraphByteBpe(TOKENIZER)).get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    ops = {node.op for node in nodes} - {function.signature.name for function in graph.library.function}
    assert not {op for op in ops if not hasattr(tf.raw_ops, op)}


def test_characters_of_bytes():
    assert sorted(byte_characters()) == byte_alphabet()
    # By the library: the characters of a text are those of its bytes.
    assert TOKENIZER.vocabulary[TOKENIZER.encode(["\x00"])[0][0]] == byte_characters()[0]
    tokens = "".join(TOKENIZER.tokenize("é漢😀"))
    assert tokens == "".join(byte_characters()[byte] for byte in "é漢😀".encode())


def test_a_long_word_in_parts(monkeypatch):
    """Parts are few bytes here: they meet late, or never, as in "aaaa" and "abab" cut at another third."""
    merges = [("a", "b"), ("a", "a"), ("aa", "a"), ("b", "c"), ("ab", "ab"), ("abab", "ab"), ("c", "aaa"), ("bc", "a")]
    tokenizer = byte_bpe([*merges, ("Ã", "©"), ("Ã©", "Ã©"), ("Ã©Ã©", "Ã©")])
    for name, value in {"_STRIDE": 6, "_OVERLAP": 5, "_LONG": 12}.items():
        monkeypatch.setattr(byte_bpe_graph, name, value)
    graph = with_offsets(tokenizer)
    runs = ["a" * 100, "ab" * 50, "é" * 40, "bc" + "a" * 50 + "cab" * 9, "x" * 30, "x" * 12, "x" * 13]
    assert_same(graph, [*runs, "", " ".join(runs)], tokenizer)
    rng, pieces = random.Random(0), ["a", "b", "c", "aaaaaaa", "ababab", "éé", " ", "\n"]
    for _ in range(10):
        assert_same(graph, ["".join(rng.choices(pieces, k=rng.randrange(41))) for _ in range(30)], tokenizer)


def test_a_long_word_takes_as_long_as_short_ones():
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokenizer = byte_bpe([(a, b) for a in letters for b in letters])
    graph = with_offsets(tokenizer)
    long = "".join(random.Random(0).choices(letters, k=100_000))
    short = " ".join(long[i : i + 99] for i in range(0, len(long), 99))

    def cpu_seconds(text):
        data = tf.constant([text.encode()])
        graph(data)
        start = time.process_time()
        graph(data)
        return time.process_time() - start

    assert_same(graph, [long], tokenizer)
    # In one piece: 676 steps, as many as merges, instead of some 60.
    assert cpu_seconds(long) < 4 * cpu_seconds(short)


@needs_data
def test_gpt2_s_vocabulary_on_97_languages():
    data = Path(os.environ["BERT_DATA_DIR"])
    ids = json.loads((data / "vocab/gpt2-vocab.json").read_text())
    lines = (data / "vocab/gpt2-merges.txt").read_text().rstrip("\n").split("\n")[1:]
    vocabulary = [*sorted(ids, key=ids.__getitem__), *SPECIAL_TOKENS]
    tokenizer = ByteBpeTokenizer(vocabulary, [tuple(line.split(" ")) for line in lines])
    with zipfile.ZipFile(data / "corpus_nltk/udhr2_even.zip") as archive:
        texts = [archive.read(name).decode("utf-8", "ignore")[:3000] for name in sorted(archive.namelist())]
    assert_same(with_offsets(tokenizer), [text for text in texts if text], tokenizer)
