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
from hypothesis import given, settings
from hypothesis import strategies as st
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
from tests.support.models.tiny_byte_bpe import SENTENCES, TEXTS, TRICKY, tiny_byte_bpe

TOKENIZER = tiny_byte_bpe()
any_text = st.one_of(st.text(TRICKY), st.text(st.characters(exclude_categories=["Cs"])))
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


def compiled(tokenizer):
    return tf.function(GraphByteBpe(tokenizer).with_offsets, input_signature=[tf.TensorSpec([None], tf.string)])


@pytest.fixture(scope="module")
def graph():
    return compiled(TOKENIZER)


def assert_same(graph, texts, tokenizer=TOKENIZER):
    found = graph(tf.constant([text.encode() for text in texts], tf.string))
    expected = tokenizer.encode_with_offsets(texts)
    assert found.ids.dtype == tf.int32
    np.testing.assert_array_equal(found.ids.values, expected.ids)
    np.testing.assert_array_equal(found.ids.row_splits, expected.row_splits)
    np.testing.assert_array_equal(found.starts, expected.starts)
    np.testing.assert_array_equal(found.ends, expected.ends)
    rows = found.ids.value_rowids().numpy().tolist()
    for row, start, end, first, last in zip(rows, *(array.numpy().tolist() for array in found[1:]), strict=True):
        assert texts[row].encode()[first:last] == texts[row][start:end].encode()


def test_a_mask_takes_the_white_space_before_it():
    """As `transformers` has it for RoBERTa: <mask> is an added token with `lstrip`, in the `tokenizers` library."""
    theirs = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(TOKENIZER.vocabulary)}, merges=[*TOKENIZER.merges]))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    ours = tf.function(GraphByteBpe(TOKENIZER).with_masks, input_signature=[tf.TensorSpec([None], tf.string)])
    texts = [
        "the <mask> sat on the <mask>.",
        "<mask>",
        " <mask> <mask><mask>  <mask>",
        "the<mask>cat \t\n\xa0\u2003\u3000\x85\x0b<mask> \u2028 house<mask>  ",
        "no mask here ",
        "",
        "<mask >< mask> <mask",
    ]
    found = ours(tf.constant([text.encode() for text in texts]))
    expected = theirs.encode_batch(texts, add_special_tokens=False)
    assert found.dtype == tf.int32
    for text, ids, encoding in zip(texts, found.to_list(), expected, strict=True):
        assert ids == encoding.ids, text

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.lists(st.one_of(st.text(TRICKY), st.just("<mask>")), max_size=6).map("".join))
    def check(text):
        assert ours(tf.constant([text.encode()])).to_list() == [theirs.encode(text, add_special_tokens=False).ids]

    check()


def test_texts_by_example_and_at_random(graph):
    assert_same(graph, [])
    assert_same(graph, [*TEXTS, *SENTENCES])

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(st.lists(any_text, max_size=4))
    def check(texts):
        assert_same(graph, texts)

    check()


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
    merges = [("a", "a"), ("aa", "a"), ("aa", "aa"), ("aaaa", "aa")]
    vocabulary = list(dict.fromkeys([*SPECIAL_TOKENS, *byte_alphabet(), *("".join(pair) for pair in merges)]))
    tokenizer = ByteBpeTokenizer(vocabulary, merges)
    texts = ["a" * n for n in range(20)]
    assert_same(compiled(tokenizer), texts, tokenizer)
    assert tokenizer.tokenize("a" * 5) == ["aa", "aaa"]


def test_a_batch_equals_its_texts_and_a_vocabulary_may_have_no_merges(graph):
    whole = graph(tf.constant([text.encode() for text in TEXTS])).ids.to_list()
    assert whole == [graph(tf.constant([text.encode()])).ids.to_list()[0] for text in TEXTS]
    bare = ByteBpeTokenizer([*SPECIAL_TOKENS, *byte_alphabet()], [])
    assert_same(compiled(bare), TEXTS, bare)


def test_words_have_a_space_before_them():
    words = ["The", "l'été", "'s", "\u200b", "漢字", "1600"]
    found = GraphByteBpe(TOKENIZER).encode_words(tf.strings.unicode_decode(tf.constant(words), "UTF-8"))
    ids, splits = TOKENIZER.encode_words(words)
    np.testing.assert_array_equal(found.values, ids)
    np.testing.assert_array_equal(found.row_splits, splits)
    assert all(TOKENIZER.vocabulary[ids[begin]].startswith("Ġ") for begin in splits[:-1])


def test_a_saved_model_has_ops_of_tensorflow_alone_and_no_other_file(tmp_path):
    module = tf.Module()
    module.tokenizer = GraphByteBpe(TOKENIZER)
    signature = [tf.TensorSpec([None], tf.string, name="text")]
    encode = tf.function(lambda text: {"ids": module.tokenizer(text).to_tensor(-1)}, input_signature=signature)
    graph = encode.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    ops = {node.op for node in nodes} - {function.signature.name for function in graph.library.function}
    assert not {op for op in ops if not hasattr(tf.raw_ops, op)}
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures={"encode": encode})
    (tmp_path / "saved").rename(tmp_path / "moved")
    assert not list((tmp_path / "moved" / "assets").iterdir())
    encode = tf.saved_model.load(str(tmp_path / "moved")).signatures["encode"]
    (ids,) = encode(text=tf.constant(SENTENCES[:1]))["ids"].numpy()
    assert ids.tolist() == TOKENIZER.encode(SENTENCES[:1])[0].tolist()


def test_characters_of_bytes():
    assert sorted(byte_characters()) == byte_alphabet()
    # By the library: the characters of a text are those of its bytes.
    assert TOKENIZER.vocabulary[TOKENIZER.encode(["\x00"])[0][0]] == byte_characters()[0]
    tokens = "".join(TOKENIZER.tokenize("é漢😀"))
    assert tokens == "".join(byte_characters()[byte] for byte in "é漢😀".encode())


def byte_bpe(merges):
    vocabulary = list(dict.fromkeys([*SPECIAL_TOKENS, *byte_alphabet(), *("".join(pair) for pair in merges)]))
    return ByteBpeTokenizer(vocabulary, merges)


def test_a_long_word_in_parts(monkeypatch):
    """Parts are few bytes here: they meet late, or never, as in "aaaa" and "abab" cut at another third."""
    merges = [("a", "b"), ("a", "a"), ("aa", "a"), ("b", "c"), ("ab", "ab"), ("abab", "ab"), ("c", "aaa"), ("bc", "a")]
    tokenizer = byte_bpe([*merges, ("Ã", "©"), ("Ã©", "Ã©"), ("Ã©Ã©", "Ã©")])
    for name, value in {"_STRIDE": 6, "_OVERLAP": 5, "_LONG": 12}.items():
        monkeypatch.setattr(byte_bpe_graph, name, value)
    graph = compiled(tokenizer)
    runs = ["a" * 100, "ab" * 50, "é" * 40, "bc" + "a" * 50 + "cab" * 9, "x" * 30, "x" * 12, "x" * 13]
    assert_same(graph, [*runs, "", " ".join(runs)], tokenizer)
    piece = st.sampled_from(["a", "b", "c", "aaaaaaa", "ababab", "éé", " ", "\n"])

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(st.lists(st.lists(piece, max_size=40).map("".join), max_size=3))
    def check(texts):
        assert_same(graph, texts, tokenizer)

    check()


def test_a_long_word_takes_as_long_as_short_ones():
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokenizer = byte_bpe([(a, b) for a in letters for b in letters])
    graph = compiled(tokenizer)
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
    assert_same(compiled(tokenizer), [text for text in texts if text], tokenizer)
