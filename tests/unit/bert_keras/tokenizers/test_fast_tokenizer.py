"""`tokenizer.json` gives the ids of the tokenizers here, for every code point that Unicode 14 has."""

import json
import random

import pytest
import tokenizers

from bert_keras.tokenizers.fast_tokenizer import fast_tokenizer
from bert_keras.tokenizers.normalize import basic_tokenize
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe
from tests.support.models.tiny_sentencepiece import tiny_sentencepiece
from tests.support.models.wordpiece_rules import RULES

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Letters that came after Unicode 14, and one that the library does not decompose.
OTHERS = {0x1C89, *range(0xA7CB, 0xA7DD), *range(0x10D50, 0x10D66), 0x11938, *range(0x16EA0, 0x16EB9)}
# What the rules look at: sigmas, cased letters, characters that they skip, accents in another order, ideographs.
LETTERS = "ΣσΑα.'\u00ad-1 Bé\u0301\u0323\u0f71\u0f72\u0f74漢\ufffdﬁ"


def words(fast, text):
    return [word for word, _ in fast.pre_tokenizer.pre_tokenize_str(fast.normalizer.normalize_str(text))]


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_words_are_those_of_the_tables(rules):
    fast = fast_tokenizer(BertTokenizer([*SPECIAL_TOKENS, "a"], **rules))
    fast = tokenizers.Tokenizer.from_str(fast.to_str())
    rng = random.Random(0)
    # One of each 512, and all of those below 0x3000.
    some = [c for c in CODE_POINTS if (c < 0x3000 or rng.random() < 1 / 512) and c not in OTHERS]
    for first in range(0, len(some), 64):
        text = " ".join(f"a{chr(c)}b {chr(c)} x{chr(c)}" for c in some[first : first + 64])
        assert words(fast, text) == basic_tokenize(text, **rules), ascii(text)
    for _ in range(2000):
        text = "".join(rng.choice(LETTERS) for _ in range(12))
        assert words(fast, text) == basic_tokenize(text, **rules), ascii(text)


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_words_of_every_code_point(rules):
    fast = fast_tokenizer(BertTokenizer([*SPECIAL_TOKENS, "a"], **rules))
    texts = {c: f"a{chr(c)}b {chr(c)} x{chr(c)}" for c in CODE_POINTS}
    other = {c for c, text in texts.items() if words(fast, text) != basic_tokenize(text, **rules)}
    assert len(other) == 55 * rules["lower_case"] + rules.get("strip_accents", rules["lower_case"]) and other <= OTHERS


def test_ids_and_special_tokens():
    vocabulary = [*SPECIAL_TOKENS, "the", "caf", "##e", "mask", "[", "]", "x" * 200]
    fast = fast_tokenizer(BertTokenizer(vocabulary, True))
    assert fast.encode("The Café [MASK]").tokens == ["[CLS]", "the", "caf", "##e", "[", "mask", "]", "[SEP]"]
    pair = fast.encode("the", "the caf")
    assert (pair.ids, pair.type_ids) == ([2, 5, 3, 5, 6, 3], [0, 0, 0, 1, 1, 1])
    # The original's limit is 200 characters; the library's is 100.
    assert fast.encode(f"{'x' * 200} {'x' * 201}").tokens[1:-1] == ["x" * 200, "[UNK]"]


def test_the_quotes_of_an_albert_that_gives_pairs_no_segments():
    albert = tiny_sentencepiece()
    plain = SentencePieceTokenizer(albert.model, albert.format._replace(has_segments=False))
    normalizers = [json.loads(fast_tokenizer(one).to_str())["normalizer"] for one in (albert, plain)]
    assert normalizers[0] == normalizers[1] and "``" in json.dumps(normalizers[0])


def test_byte_level_bpe():
    tokenizer = tiny_byte_bpe()
    fast = fast_tokenizer(tokenizer)
    text = "the cat's  <mask> café\n 漢"
    ids = tokenizer.encode([text])[0].tolist()
    assert fast.encode(text, add_special_tokens=False).ids == ids
    pair = fast.encode(text, "the")
    other, cls, sep = tokenizer.encode(["the"])[0].tolist(), tokenizer.cls_id, tokenizer.sep_id
    assert pair.ids == [cls, *ids, sep, sep, *other, sep] and not any(pair.type_ids)
