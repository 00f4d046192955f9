"""Choice, number and replacement of masked tokens, compared with the rules of BERT, SpanBERT and RoBERTa."""

import collections
import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens, num_predictions
from bert_keras.errors import InputError
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB_SIZE = 50


def vocabulary_of(tokens):
    return MaskingVocabulary.of(BertTokenizer([*SPECIAL_TOKENS, *tokens], lower_case=True))


VOCABULARY = vocabulary_of([f"w{i}" for i in range(5, VOCAB_SIZE)])


def batch(lengths, T, rng):
    """Sequences [CLS] ... [SEP] ... [SEP] of `lengths` tokens, none of them special inside."""
    input_ids = np.full((len(lengths), T), PAD, np.int32)
    input_mask = np.zeros((len(lengths), T), np.uint8)
    for row, length in enumerate(lengths):
        input_ids[row, :length] = rng.integers(5, VOCAB_SIZE, length)
        input_ids[row, [0, length // 2, length - 1]] = CLS, SEP, SEP
        input_mask[row, :length] = 1
    return input_ids, input_mask


def mask(input_ids, input_mask, seed=0, vocabulary=VOCABULARY, max_predictions=None, sequence_ids=None, **changes):
    settings = MaskingSettings(**changes)
    P = max_predictions or settings.max_predictions_per_seq
    return mask_tokens(input_ids, input_mask, np.random.default_rng(seed), settings, vocabulary, P, sequence_ids)


def predictions(num_tokens, num_maskable=None, seed=0, **changes):
    num_tokens = np.atleast_1d(num_tokens)
    num_maskable = num_tokens if num_maskable is None else np.atleast_1d(num_maskable)
    return num_predictions(num_tokens, num_maskable, MaskingSettings(**changes), np.random.default_rng(seed))


def shown_and_labels(masked):
    """The masked ids and the original ids at the predicted positions of all rows."""
    weights = masked["masked_lm_weights"] > 0
    return (
        np.take_along_axis(masked["input_ids"], masked["masked_lm_positions"], 1)[weights],
        masked["masked_lm_ids"][weights],
    )


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    # 1.5 -> 2, 4.5 -> 4 (half to even), 19.2, 57.6, 76.8; 5 * .15 = .75; 3 * .15 = .45, but at least 1.
    [(3, 1), (5, 1), (10, 2), (30, 4), (128, 19), (384, 58), (512, 77)],
)
def test_number_of_predictions_rounds_half_to_even(num_tokens, expected):
    assert predictions(num_tokens, max_predictions_per_seq=512).tolist() == [expected]
    assert expected == max(1, round(num_tokens * 0.15))


def test_number_of_predictions_is_capped():
    assert predictions([128, 512], max_predictions_per_seq=18).tolist() == [18, 18]


def test_special_tokens_and_padding_are_never_chosen_but_count():
    input_ids, input_mask = batch([5, 10, 30, 40], 40, np.random.default_rng(0))
    # Rate 1: every candidate, and nothing else.
    masked = mask(
        input_ids,
        input_mask,
        masked_lm_prob=1.0,
        max_predictions_per_seq=40,
        mask_fraction=1.0,
        keep_fraction=0.0,
    )
    assert masked["masked_lm_weights"].sum(1).tolist() == [2, 7, 27, 37]
    candidates = (input_ids != CLS) & (input_ids != SEP) & (input_ids != PAD)
    assert np.array_equal(masked["input_ids"], np.where(candidates, MASK, input_ids))
    # 10 and 30 tokens, special ones counted: 2 and 4.
    assert mask(input_ids, input_mask)["masked_lm_weights"].sum(1).tolist() == [1, 2, 4, 6]


def test_a_sequence_of_special_tokens_has_no_prediction():
    input_ids = np.array([[CLS, SEP, SEP, PAD]], np.int32)
    masked = mask(input_ids, input_ids != PAD, max_predictions_per_seq=2)
    assert masked["masked_lm_weights"].tolist() == [[0.0, 0.0]]
    assert np.array_equal(masked["input_ids"], input_ids)


def test_positions_ascend_and_padding_is_zero():
    input_ids, input_mask = batch([128, 20, 128], 128, np.random.default_rng(1))
    masked = mask(input_ids, input_mask, seed=1)
    for row, count in enumerate([19, 3, 19]):
        positions = masked["masked_lm_positions"][row]
        assert (np.diff(positions[:count]) > 0).all()
        assert np.array_equal(masked["masked_lm_ids"][row, :count], input_ids[row, positions[:count]])
        assert masked["masked_lm_weights"][row].tolist() == [1.0] * count + [0.0] * (20 - count)
        assert positions[count:].tolist() == masked["masked_lm_ids"][row, count:].tolist() == [0] * (20 - count)
    assert {name: values.dtype.name for name, values in masked.items()} == {
        "input_ids": "int32",
        "masked_lm_positions": "int32",
        "masked_lm_ids": "int32",
        "masked_lm_weights": "float32",
    }


def test_keep_only_changes_nothing():
    input_ids, input_mask = batch([64] * 8, 64, np.random.default_rng(2))
    masked = mask(input_ids, input_mask, mask_fraction=0.0, keep_fraction=1.0)
    assert np.array_equal(masked["input_ids"], input_ids)
    assert masked["masked_lm_weights"].sum() == 8 * 10


def test_random_tokens_are_uniform_over_the_whole_vocabulary():
    input_ids, input_mask = batch([128] * 2000, 128, np.random.default_rng(3))
    shown, labels = shown_and_labels(mask(input_ids, input_mask, mask_fraction=0.0, keep_fraction=0.0))
    counts = np.bincount(shown, minlength=VOCAB_SIZE)
    expected = len(shown) / VOCAB_SIZE
    assert len(counts) == VOCAB_SIZE  # special tokens too, and nothing beyond
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    # May equal what it replaces.
    same = (shown == labels).sum()
    assert abs(same - expected) < 5 * np.sqrt(expected)


def test_every_candidate_is_equally_likely():
    input_ids, input_mask = batch([20] * 20_000, 24, np.random.default_rng(4))
    masked = mask(input_ids, input_mask)
    counts = np.bincount(masked["masked_lm_positions"][:, :3].ravel(), minlength=24)
    assert counts[[0, 10, 19, 20, 21, 22, 23]].tolist() == [0] * 7
    expected = 20_000 * 3 / 17
    chosen = np.delete(counts, [0, 10, 19, 20, 21, 22, 23])
    assert np.abs(chosen - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("unit", ["token", "whole_word", "ngram", "span"])
@pytest.mark.parametrize(
    "shares", [(0.8, 0.1, 0.1), (1, 0, 0), (0.8, 0, 0.2), (0.8, 0.2, 0), (0, 0.2, 0.8), (0, 0, 1)], ids=str
)
def test_replacements_by_counts(shares, unit):
    """The BERT paper's ablation (appendix C.2): shares that become [MASK], stay, become random tokens."""
    input_ids, input_mask = batch([128] * 500, 128, np.random.default_rng(5))
    # The text has unused tokens alone and random ones are real, so no random token is the original.
    vocabulary = vocabulary_of([*(f"[unused{i}]" for i in range(5, VOCAB_SIZE)), *"abcdefgh"])
    changes = {"mask_fraction": shares[0], "keep_fraction": shares[1], "unit": unit, "random_tokens": "real"}
    shown, labels = shown_and_labels(mask(input_ids, input_mask, 5, vocabulary, **changes))
    ours = ((shown == MASK).sum(), (shown == labels).sum(), ((shown != MASK) & (shown != labels)).sum())
    assert sum(ours) == 500 * 19
    # The tokens of a span share their fate (a mean of 3.8 words, more where spans meet): fewer independent draws.
    _assert_shares(ours, shares, tokens_a_draw=8 if unit == "span" else 1)


def _assert_shares(counts, shares, tokens_a_draw=1):
    total = sum(counts)
    for count, share in zip(counts, shares, strict=True):
        assert abs(count - share * total) <= 4 * np.sqrt(total * share * (1 - share) * tokens_a_draw)


@pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is unset: no golden_pretraining")
def test_the_original_s_instances():
    """The original's output has the same properties: number and order of the predictions, shares of replacements."""
    path = pathlib.Path(os.environ["BERT_DATA_DIR"], "golden_pretraining", "create_pretraining_standard.jsonl")
    replacements: collections.Counter[str] = collections.Counter()
    for line in path.read_text().splitlines():
        instance = json.loads(line)
        tokens, positions = instance["tokens"], instance["masked_lm_positions"]
        assert len(positions) == predictions(len(tokens))
        assert positions == sorted(positions)
        for position, label in zip(positions, instance["masked_lm_labels"], strict=True):
            shown = tokens[position]
            replacements["mask" if shown == "[MASK]" else "same" if shown == label else "random"] += 1
    assert replacements == {"mask": 722, "same": 96, "random": 104}
    _assert_shares([replacements["mask"], replacements["same"], replacements["random"]], (0.8, 0.1, 0.1))


@given(
    lengths=st.lists(st.integers(5, 33), min_size=1, max_size=5),
    prob=st.floats(0, 1),
    mask_fraction=st.floats(0, 1),
    P=st.integers(1, 33),
    seed=st.integers(0, 1000),
)
def test_labels_undo_masking(lengths, prob, mask_fraction, P, seed):
    input_ids, input_mask = batch(lengths, 33, np.random.default_rng(seed))
    before = input_ids.copy()
    masked = mask(
        input_ids,
        input_mask,
        seed,
        masked_lm_prob=prob,
        max_predictions_per_seq=P,
        mask_fraction=mask_fraction,
        keep_fraction=(1 - mask_fraction) / 2,
    )
    assert np.array_equal(input_ids, before)
    rows, slots = np.nonzero(masked["masked_lm_weights"])
    restored = masked["input_ids"].copy()
    restored[rows, masked["masked_lm_positions"][rows, slots]] = masked["masked_lm_ids"][rows, slots]
    assert np.array_equal(restored, input_ids)
    wanted = predictions(lengths, np.array(lengths) - 3, masked_lm_prob=prob, max_predictions_per_seq=P)
    assert np.array_equal(masked["masked_lm_weights"].sum(1), wanted)


def test_up_counts_only_maskable_tokens():
    """SpanBERT: ceil(.15 * len), without [CLS] and [SEP]: 20 -> 3, 21 -> 4 (3.15), 510 -> 77 (76.5)."""
    wanted = predictions([23, 24, 512], [20, 21, 510], rounding="up", max_predictions_per_seq=512)
    assert wanted.tolist() == [3, 4, 77]
    assert predictions([3], [0], rounding="up").tolist() == [0]


@given(num_tokens=st.integers(0, 512), seed=st.integers(0, 100))
def test_stochastic_is_the_share_rounded_down_or_up(num_tokens, seed):
    wanted = predictions([num_tokens] * 20, seed=seed, rounding="stochastic", max_predictions_per_seq=512)
    assert set(wanted) <= {int(num_tokens * 0.15), int(num_tokens * 0.15 + 1)}


def test_stochastic_is_the_share_on_average():
    """RoBERTa: int(.15 * n + U): 10 tokens give 1 or 2, equally often; 2 give none in 7 of 10."""
    wanted = predictions([10] * 10_000, rounding="stochastic")
    assert abs((wanted == 2).mean() - 0.5) < 4 * np.sqrt(0.25 / 10_000)
    wanted = predictions([2] * 10_000, rounding="stochastic")
    assert abs((wanted == 0).mean() - 0.7) < 4 * np.sqrt(0.21 / 10_000)
    # Special tokens count, though they are not maskable here.
    assert set(predictions([40] * 100, [38] * 100, rounding="stochastic")) == {6}


@pytest.mark.parametrize("unit", ["token", "whole_word", "ngram", "span"])
def test_any_position_may_be_masked(unit):
    """RoBERTa: <s> and </s> too, each position as often as any other; never padding."""
    input_ids, input_mask = batch([20] * 10_000, 24, np.random.default_rng(6))
    masked = mask(input_ids, input_mask, special_tokens=True, rounding="stochastic", unit=unit)
    positions = masked["masked_lm_positions"][masked["masked_lm_weights"] > 0]
    counts = np.bincount(positions, minlength=24)
    assert counts[20:].tolist() == [0] * 4
    assert (counts[[0, 10, 19]] > 0).all()
    if unit in ("token", "whole_word"):
        assert np.abs(counts[:20] - 10_000 * 3 / 20).max() < 5 * np.sqrt(10_000 * 3 / 20)


def test_real_random_tokens_are_neither_special_nor_unused():
    vocabulary = vocabulary_of(["[unused0]", "a", "[unused12]", "##b", "[unused]", "[unused1]a"])
    input_ids, input_mask = batch([128] * 100, 128, np.random.default_rng(7))
    input_ids[input_ids > SEP] = 6
    changes = {"mask_fraction": 0.0, "keep_fraction": 0.0, "random_tokens": "real"}
    shown, _ = shown_and_labels(mask(input_ids, input_mask, 0, vocabulary, **changes))
    counts = np.bincount(shown, minlength=11)
    assert np.flatnonzero(counts).tolist() == [6, 8, 9, 10]
    assert np.abs(counts[[6, 8, 9, 10]] - 475).max() < 5 * np.sqrt(475)


def test_a_vocabulary_without_real_tokens_is_refused_where_one_is_needed():
    input_ids, input_mask = batch([20], 20, np.random.default_rng(7))
    input_ids[input_ids > SEP] = UNK
    with pytest.raises(InputError, match="random_tokens is 'real', but the vocabulary has special and unused tokens"):
        mask(input_ids, input_mask, 0, vocabulary_of([]), random_tokens="real", mask_fraction=0.0, keep_fraction=0.0)
    assert mask(input_ids, input_mask, 0, vocabulary_of([]), random_tokens="real", mask_fraction=1.0, keep_fraction=0.0)


def test_random_tokens_of_the_corpus_are_as_frequent_as_in_the_text():
    rng = np.random.default_rng(8)
    input_ids, input_mask = batch([100] * 300, 128, rng)
    text = input_ids > SEP
    input_ids[text] = rng.choice([5, 6, 7], text.sum(), p=[0.7, 0.2, 0.1])
    changes = {"mask_fraction": 0.0, "keep_fraction": 0.0, "random_tokens": "corpus"}
    shown, _ = shown_and_labels(mask(input_ids, input_mask, **changes))
    assert set(shown) == {5, 6, 7}  # no special token and no padding
    for token, share in ((5, 0.7), (6, 0.2), (7, 0.1)):
        assert abs((shown == token).mean() - share) < 5 * np.sqrt(share * (1 - share) / len(shown))


def test_unknown_and_mask_tokens_of_a_text_are_ordinary_others_are_special():
    vocabulary = vocabulary_of(["a", "##b"])
    assert np.flatnonzero(vocabulary.special).tolist() == [PAD, CLS, SEP]
    assert np.flatnonzero(vocabulary.is_suffix).tolist() == [6]
    assert vocabulary.real_ids.tolist() == [5, 6]
    assert vocabulary.mask_id == MASK
    input_ids = np.array([[CLS, UNK, MASK, SEP]], np.int32)
    masked = mask(input_ids, input_ids >= 0, masked_lm_prob=1.0)
    assert masked["masked_lm_positions"][0, :3].tolist() == [1, 2, 0]


@pytest.mark.parametrize("unit", ["token", "whole_word", "ngram", "span"])
@pytest.mark.parametrize("shape", [(0, 8), (2, 8)])
def test_masking_works_without_maskable_tokens(unit, shape):
    nothing = np.zeros(shape, np.int32)
    for sequence_ids in (None, nothing):
        masked = mask(nothing, nothing, unit=unit, sequence_ids=sequence_ids)
        assert masked["masked_lm_weights"].sum() == 0
        assert masked["masked_lm_positions"].shape == (shape[0], 20)


@pytest.mark.parametrize(
    ("unit", "sha256"),
    [
        ("token", "fd2d9ea323ff8465"),
        ("whole_word", "f3db490d6330a2f6"),
        ("ngram", "d30f4cc363b8a8e2"),
        ("span", "138a0f1b8b6aeb89"),
    ],
)
def test_the_same_bytes_with_every_numpy(unit, sha256):
    """Beginnings of the digests that NumPy 1.26.4 (Python 3.11) and 2.5.5 (3.13) gave, with and without AVX-512."""
    input_ids = (np.arange(64 * 128, dtype=np.int32) * 7919 % 45 + 5).reshape(64, 128)
    input_ids[:, [0, 60, 127]] = CLS, SEP, SEP
    vocabulary = vocabulary_of([f"##w{i}" if i % 4 == 0 else f"w{i}" for i in range(5, VOCAB_SIZE)])
    digest = hashlib.sha256()
    for random_tokens, rounding in (("vocabulary", "nearest"), ("real", "up"), ("corpus", "stochastic")):
        changes = {"unit": unit, "random_tokens": random_tokens, "rounding": rounding}
        for feature in mask(input_ids, input_ids > 0, 0, vocabulary, **changes).values():
            digest.update(feature.tobytes())
    assert digest.hexdigest()[:16] == sha256, "is masking changed on purpose? Then put this digest into the list"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"masked_lm_prob": 1.5}, "masked_lm_prob is 1.5"),
        ({"mask_fraction": -0.1}, "mask_fraction is -0.1"),
        ({"mask_fraction": 0.8, "keep_fraction": 0.3}, "mask_fraction 0.8, keep_fraction 0.3"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq is 0"),
    ],
)
def test_invalid_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(MaskingSettings(), **settings)
