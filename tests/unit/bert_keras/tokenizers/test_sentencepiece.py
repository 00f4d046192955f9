"""SentencePiece: ids of AlbertTokenizer, the same in the graph, and the characters of each token."""

import base64
import json
import os
import pickle
import unicodedata
import zipfile

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from bert_keras.errors import InputError
from bert_keras.tokenizers.fast_tokenizer import fast_tokenizer
from bert_keras.tokenizers.protocol import FORMATS
from bert_keras.tokenizers.sentencepiece import (
    SentencePieceTokenizer,
    _continues_word,
    model_of_fast,
    model_with_ids,
    precompiled,
)
from bert_keras.tokenizers.sentencepiece_graph import GraphSentencePiece
from bert_keras.tokenizers.vocabulary_files import read_sentencepiece
from tests.support.models.tiny_sentencepiece import TEXTS, albert_fast, tiny_sentencepiece, trained


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_sentencepiece()


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphSentencePiece(tokenizer)


def ids_of(tokenizer, texts):
    ids, splits = tokenizer.encode(texts)
    return [row.tolist() for row in np.split(ids, splits[1:-1])]


# The library looks a character with its marks up only if it has at most five bytes, and then takes the first part of it
# that the table has (normalizers/precompiled.rs). SentencePiece makes others of Korean and of two marks. Special
# tokens are text here. Of equally likely ways to cut a word the two take different ones: 0 00 or 00 0.
UNLIKE_FAST = ("한", "\u1112", "\u0323", "[MASK]", "000", "=====")
LIKE_FAST = [text for text in TEXTS if not any(part in text for part in UNLIKE_FAST)]


@pytest.mark.parametrize(
    ("lower_case", "keep_accents"), [(True, False), pytest.param(False, True, marks=pytest.mark.slow)]
)
def test_ids_are_those_of_the_fast_tokenizer(tokenizer, lower_case, keep_accents):
    fast = albert_fast(trained(), lower_case, keep_accents)
    expected = [encoding.ids for encoding in fast.encode_batch(LIKE_FAST, add_special_tokens=False)]
    if keep_accents:
        tokenizer = SentencePieceTokenizer(model_with_ids(trained(), "albert", lower_case, keep_accents))
    assert ids_of(tokenizer, LIKE_FAST) == expected
    # As `tokenizer.json`, too; special tokens around them.
    written = fast_tokenizer(tokenizer)
    assert [encoding.ids[1:-1] for encoding in written.encode_batch(LIKE_FAST)] == expected


def test_ids_are_those_of_the_original(tokenizer):
    """Before SentencePiece, google-research/albert, tokenization.py, `preprocess_text`; it strips no Indic vowels."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained())

    def original(text):
        text = unicodedata.normalize("NFKD", " ".join(text.split()))
        return processor.encode("".join(c for c in text if not unicodedata.combining(c)).lower())

    texts = [text for text in TEXTS if not any(c in text for c in "`,Σนก\u0928\x00")]
    assert len(texts) > 15 and ids_of(tokenizer, texts) == list(map(original, texts))


def test_the_texts_of_tokens_are_the_text(tokenizer):
    text = "the cat, the number"
    ids, _ = tokenizer.encode([text])
    assert "".join(tokenizer.token_texts[i] for i in ids) == f" {text}"


def test_no_piece_ends_with_a_number_and_a_comma(tokenizer):
    assert "▁1990," not in tokenizer.tokenize("In 1990, it") and "," in tokenizer.tokenize("1,000,")


def test_the_graph_gives_the_same_ids_and_offsets(tokenizer, graph):
    texts = tf.constant(TEXTS)
    offline, inside = tokenizer.encode_with_offsets(TEXTS), graph.with_offsets(texts)
    assert graph(texts).to_list() == ids_of(tokenizer, TEXTS) == inside.ids.to_list()
    np.testing.assert_array_equal(offline.ids, inside.ids.values)
    np.testing.assert_array_equal(offline.starts, inside.starts)
    np.testing.assert_array_equal(offline.ends, inside.ends)
    row = np.repeat(np.arange(len(TEXTS)), np.diff(offline.row_splits))
    for offsets, in_bytes in ((offline.starts, inside.byte_starts), (offline.ends, inside.byte_ends)):
        assert [len(TEXTS[i][:n].encode()) for i, n in zip(row, offsets, strict=True)] == in_bytes.numpy().tolist()


def test_offsets_are_the_characters_of_each_token_without_space(tokenizer):
    text = "``Où''  est\tl'été"
    found = tokenizer.encode_with_offsets([text])
    pieces = [text[start:end] for start, end in zip(found.starts, found.ends, strict=True)]
    assert "".join(pieces) == "".join(text.split()) and "``" in pieces
    assert all(piece == piece.strip() for piece in pieces)


def test_bytes_that_are_not_utf8_are_dropped(tokenizer, graph):
    broken = b"abc\xff\xfe d\xc3"
    assert graph(tf.constant([broken])).to_list() == ids_of(tokenizer, [broken.decode("utf-8", "ignore")])
    assert graph.with_offsets(tf.constant([b"\xffabc"])).byte_starts.numpy().min() == 1
    assert len(ids_of(tokenizer, ["lone \ud800"])[0]) > 0


def test_masks_in_a_text(tokenizer, graph):
    text = "The cat [MASK] on[MASK][MASK] mat"
    the_cat, on, mat = ids_of(tokenizer, ["The cat", "on", "mat"])
    mask = [tokenizer.mask_id]
    expected = [*the_cat, *mask, *on, *mask, *mask, *mat]
    assert graph.with_masks(tf.constant([text, "", "mat"])).to_list() == [expected, [], mat]


def test_words_and_pieces_that_continue_them(tokenizer, graph):
    words = ["Viktor", "über", "(c)"]
    code_points = tf.strings.unicode_decode(words, "UTF-8")
    ids, splits = tokenizer.encode_words(words)
    inside = graph.encode_words(code_points)
    assert inside.values.numpy().tolist() == ids.tolist() and inside.row_splits.numpy().tolist() == splits.tolist()
    kinds = dict(zip(tokenizer.vocabulary, tokenizer.is_suffix, strict=True))
    # google-research/albert, create_pretraining_data.py, `_is_start_piece_sp`.
    assert kinds["s"] and not any(kinds[piece] for piece in ("▁the", ".", "(", "€", "<unk>", "[MASK]"))
    # Letters of other alphabets do as English ones; ideographs are words.
    assert kinds["я"] and all(map(_continues_word, ("습니다", "ём", "é", "\u0301", "s.")))
    assert not any(map(_continues_word, ("漢字", "。", "1", "a1", "▁я", "▁")))


def test_models_are_made_once_and_travel(tokenizer):
    assert model_with_ids(tokenizer.model, "albert", True, False) is tokenizer.model
    assert model_with_ids(trained(), "albert", True, False) == tokenizer.model
    assert pickle.loads(pickle.dumps(tokenizer)).vocabulary == tokenizer.vocabulary


def test_a_bpe_model_has_the_ids_of_the_library_in_the_graph_too():
    stored = trained(kind="xlm-roberta", model_type="bpe")
    tokenizer = SentencePieceTokenizer(model_with_ids(stored, "xlm-roberta"), FORMATS["roberta"])
    plain = sentencepiece.SentencePieceProcessor(model_proto=stored)
    # fairseq has four tokens of its own in the place of the model's three; unknown is 3 there, 0 here.
    expected = [[i + 1 if i else 3 for i in plain.encode(text)] for text in TEXTS]
    assert ids_of(tokenizer, TEXTS) == expected != ids_of(tiny_sentencepiece(), TEXTS)
    assert GraphSentencePiece(tokenizer)(tf.constant(TEXTS)).to_list() == expected
    with pytest.raises(InputError, match=r"a BPE model of SentencePiece cannot be written as tokenizer.json"):
        fast_tokenizer(tokenizer)


def test_a_tokenizer_json_holds_the_same_model(tokenizer):
    fast = albert_fast(trained())
    fast.add_special_tokens(["[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>"])
    fields = json.loads(fast.to_str())
    read = SentencePieceTokenizer(model_of_fast(fields))
    assert read.vocabulary == tokenizer.vocabulary and ids_of(read, TEXTS) == ids_of(tokenizer, TEXTS)
    table = next(s for s in fields["normalizer"]["normalizers"] if s["type"] == "Precompiled")["precompiled_charsmap"]
    assert base64.b64decode(table)


def test_pieces_that_end_with_a_digit_and_a_comma_lose_100():
    proto = sentencepiece_model_pb2.ModelProto.FromString(trained())
    for piece in ("▁3,", "a,", "▁33"):
        proto.pieces.add(piece=piece, score=-1.0)
    found = dict(precompiled(model_with_ids(proto.SerializeToString(), "albert", True, False))[0])
    assert [found["▁3,"], found["a,"], found["▁33"]] == [-101.0, -1.0, -1.0]


def test_files_that_are_no_such_model_are_named(tmp_path):
    path = tmp_path / "spiece.model"
    for content in (trained()[:-5], b""):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"spiece.model: it is no model of SentencePiece"):
            read_sentencepiece(str(tmp_path), 10, "config.json")
    path.write_bytes(tiny_sentencepiece().model)
    with pytest.raises(InputError, match=r"^[^:]*spiece.model has \d+ tokens, but the word embeddings have 10 rows"):
        read_sentencepiece(str(tmp_path), 10, "config.json")
    with pytest.raises(TypeError, match="not one str"):
        tiny_sentencepiece().encode("text")


@pytest.mark.slow
@pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set: no texts of 194 languages")
def test_ids_of_194_languages():
    """Learned from a seventh of the lines, read in all of them; in two of 18,294 two ways to cut are equally likely."""
    with zipfile.ZipFile(f"{os.environ['BERT_DATA_DIR']}/corpus_nltk/udhr2_even.zip") as file:
        names = [name for name in file.namelist() if name.endswith(".txt")]
        texts = [line for name in names for line in file.read(name).decode("utf-8", "ignore").splitlines()]
    texts = [text.strip() for text in texts if text.strip()]
    model = trained(tuple(texts[::7]), 4000)
    tokenizer = SentencePieceTokenizer(model_with_ids(model, "albert", True, False))
    found = ids_of(tokenizer, texts)
    expected = [encoding.ids for encoding in albert_fast(model).encode_batch(texts, add_special_tokens=False)]
    different = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    assert len(texts) > 18_000 and len(different) <= 2
    assert all(sorted(one) == sorted(other) for one, other in different)
    assert GraphSentencePiece(tokenizer)(tf.constant(texts)).to_list() == found
