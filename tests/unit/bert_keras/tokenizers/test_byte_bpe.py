"""Byte-level BPE equals GPT-2's, token for token."""

import itertools
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS, ByteBpeTokenizer, byte_alphabet, words

MERGES = [("Ġ", "c"), ("a", "t"), ("Ġc", "at"), ("s", "at")]
VOCABULARY = [*SPECIAL_TOKENS, *byte_alphabet(), *("".join(pair) for pair in MERGES)]
TOKENIZER = ByteBpeTokenizer(VOCABULARY, MERGES)
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is unset: no GPT-2 vocabulary")


def text_of(tokens):
    """Decode tokens by GPT-2's table: printable bytes are themselves, the others start at U+0100."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    of_char = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    return bytes(of_char[char] for char in "".join(tokens)).decode()


def test_merges_apply_in_order():
    # "Ġc" before "at" before "Ġcat"; "s" and "at" after that; "at" at the beginning has no space.
    assert TOKENIZER.tokenize("cat cat sat at") == ["c", "at", "Ġcat", "Ġ", "sat", "Ġ", "at"]


def test_the_text_of_tokens_is_read_as_utf8():
    tokens = ["Ġcat", "æ¼¢", "æ¼", "新", "Ġ新"]
    tokenizer = ByteBpeTokenizer([*VOCABULARY[:-4], *tokens], [])
    # "漢" whole, and its first two bytes; the last two tokens are not of BPE's characters.
    assert tokenizer.token_texts[-5:] == [" cat", "漢", "\ufffd", "新", "Ġ新"]
    assert tokenizer.token_texts[: len(SPECIAL_TOKENS)] == list(SPECIAL_TOKENS)


def test_special_tokens_in_a_text_are_text():
    assert TOKENIZER.tokenize("<s>") == ["<", "s", ">"]


@given(st.text())
def test_decoding_restores_every_text(text):
    assert text_of(TOKENIZER.tokenize(text)) == text


@given(st.lists(st.text(max_size=20), max_size=8))
def test_texts_are_encoded_independently(texts):
    ids, splits = TOKENIZER.encode(texts)
    assert ids.dtype == np.int32 and splits.dtype == np.int64
    each = [[VOCABULARY[i] for i in ids[a:b]] for a, b in itertools.pairwise(splits)]
    assert each == [TOKENIZER.tokenize(text) for text in texts]


def test_more_texts_than_one_batch():
    ids, splits = TOKENIZER.encode("at " * (i % 4) for i in range(2500))
    assert len(splits) == 2501 and len(ids) == splits[-1]
    assert np.array_equal(np.diff(splits)[:4], [0, 2, 4, 6]) and np.array_equal(np.diff(splits)[-4:], [0, 2, 4, 6])


def test_is_suffix():
    continues = dict(zip(VOCABULARY, TOKENIZER.is_suffix, strict=True))
    assert continues["at"] and continues["c"]
    assert not continues["Ġcat"] and not continues["Ġ"] and not continues["<mask>"]


def test_ids_of_special_tokens_are_robertas():
    named = (TOKENIZER.cls_id, TOKENIZER.pad_id, TOKENIZER.sep_id, TOKENIZER.unk_id, TOKENIZER.mask_id)
    assert named == (0, 1, 2, 3, 4)


def test_a_lone_surrogate_is_a_question_mark():
    assert TOKENIZER.tokenize("\ud800") == ["?"]


def test_words():
    assert list(words(["a cat", "it's  two"])) == ["a", "Ġcat", "it", "'s", "Ġ", "Ġtwo"]


def test_pickles_as_plain_data():
    copy = pickle.loads(pickle.dumps(TOKENIZER))
    assert copy.tokenize("cat sat") == TOKENIZER.tokenize("cat sat")
    assert copy.vocabulary == TOKENIZER.vocabulary


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ([*VOCABULARY, "at"], "has the token 'at' twice"),
        (VOCABULARY[1:], "lacks <s>;"),
        ([token for token in VOCABULARY if token != "A"], "lacks A;"),
    ],
)
def test_invalid_vocabularies_are_refused(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        ByteBpeTokenizer(vocabulary, MERGES)


def test_a_str_instead_of_a_list_is_refused():
    with pytest.raises(TypeError, match="not one str"):
        TOKENIZER.encode("cat")


@needs_data
def test_gpt2():
    """The golden case of GPT-2's own encoder, and its ids."""
    data = Path(os.environ["BERT_DATA_DIR"])
    ids = json.loads((data / "vocab/gpt2-vocab.json").read_text())
    lines = (data / "vocab/gpt2-merges.txt").read_text().rstrip("\n").split("\n")[1:]
    # RoBERTa's special tokens come after GPT-2's tokens here, so that the ids stay.
    vocabulary = [*sorted(ids, key=ids.__getitem__), *SPECIAL_TOKENS]
    tokenizer = ByteBpeTokenizer(vocabulary, [tuple(line.split(" ")) for line in lines])
    golden = json.loads((data / "golden_tokenization/gpt2_encoded_tokens.json").read_text())
    assert tokenizer.tokenize(golden["text"]) == golden["bpe_tokens"]
    assert tokenizer.encode([golden["text"]])[0].tolist() == golden["token_ids"]
