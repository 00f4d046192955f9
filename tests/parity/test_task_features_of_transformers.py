"""Features of tasks against transformers' tokenizer, on pairs and single texts of real words."""

import numpy as np
import pytest
from transformers import BertTokenizerFast

from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "Playing", "played", "far", ".", "unsaid"]
VOCABULARY = [*SPECIAL_TOKENS, *WORDS[:6], ".", "play", "##ing", "##ed", "far", "un", "##said"]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(token + "\n" for token in VOCABULARY))
    return BertTokenizer(VOCABULARY, True), BertTokenizerFast(vocab={t: i for i, t in enumerate(VOCABULARY)})


def texts(seed, rows=300, longest=14):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, longest))) for _ in range(rows)]


def theirs(tokenizer, *texts, max_length):
    found = tokenizer(*texts, truncation="longest_first", max_length=max_length, padding="longest", return_tensors="np")
    names = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    return {ours: found[name] for ours, name in names.items()}


@pytest.mark.parametrize("length", [8, 13, 64])
def test_single_texts(tokenizers, length):
    ours, hub = tokenizers
    found = single_sequences(TokenRuns.of(ours, texts(0)), length, "head", ours)
    for name, expected in theirs(hub, texts(0), max_length=length).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


@pytest.mark.parametrize("length", [13, 16, 64])
def test_pairs(tokenizers, length):
    """transformers halves an odd room the other way round where both texts are cut and A is not the longer one.

    The original takes the last piece from B on a tie, so A keeps the odd one; `tokenizers` gives it to the longer text,
    and to B on a tie. An even room, and pairs of which one is cut, are the same.
    """
    ours, hub = tokenizers
    first, second = TokenRuns.of(ours, texts(1)), TokenRuns.of(ours, texts(2))
    found = pair_sequences(first, second, length, ours)
    expected = theirs(hub, texts(1), texts(2), max_length=length)
    room = length - 3
    other = np.full(len(first.lengths), room % 2 == 1)
    other &= (first.lengths > room // 2) & (second.lengths > room // 2) & (first.lengths <= second.lengths)
    other &= first.lengths + second.lengths > room
    assert other.sum() > 20 if room % 2 and length < 64 else True
    for name in found:
        np.testing.assert_array_equal(found[name][~other], expected[name][~other], err_msg=name)
    kept = {name: arrays["segment_ids"][other].sum(1) for name, arrays in (("ours", found), ("theirs", expected))}
    np.testing.assert_array_equal(kept["ours"] + 1, kept["theirs"])
