"""Masking against FACTS D1.9, D1.11 and D1.12."""

import collections
import dataclasses
import json
import os
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.masking import MaskingSettings, mask_tokens, num_predictions

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB_SIZE = 50


def batch(lengths, T, rng):
    """Sequences [CLS] ... [SEP] ... [SEP] of `lengths` tokens, none of them special inside."""
    input_ids = np.full((len(lengths), T), PAD, np.int32)
    input_mask = np.zeros((len(lengths), T), np.uint8)
    for row, length in enumerate(lengths):
        input_ids[row, :length] = rng.integers(5, VOCAB_SIZE, length)
        input_ids[row, [0, length // 2, length - 1]] = CLS, SEP, SEP
        input_mask[row, :length] = 1
    return input_ids, input_mask


def mask(input_ids, input_mask, seed=0, vocab_size=VOCAB_SIZE, **settings):
    return mask_tokens(
        input_ids,
        input_mask,
        np.random.default_rng(seed),
        settings=MaskingSettings(**settings),
        unmaskable_ids=(CLS, SEP),
        mask_id=MASK,
        vocab_size=vocab_size,
    )


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    # 1.5 -> 2, 4.5 -> 4 (half to even), 19.2, 57.6, 76.8; 5 * .15 = .75; 3 * .15 = .45, but at least 1.
    [(3, 1), (5, 1), (10, 2), (30, 4), (128, 19), (384, 58), (512, 77)],
)
def test_d1_9_number_of_predictions_rounds_half_to_even(num_tokens, expected):
    settings = MaskingSettings(max_predictions_per_seq=512)
    assert num_predictions(np.array([num_tokens]), settings).tolist() == [expected]
    assert expected == max(1, round(num_tokens * 0.15))


def test_d1_9_number_of_predictions_is_capped():
    assert num_predictions(np.array([128, 512]), MaskingSettings(max_predictions_per_seq=18)).tolist() == [
        18,
        18,
    ]


def test_d1_9_special_tokens_and_padding_are_never_chosen_but_count():
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


def test_d1_9_a_sequence_of_special_tokens_has_no_prediction():
    input_ids = np.array([[CLS, SEP, SEP, PAD]], np.int32)
    masked = mask(input_ids, input_ids != PAD, max_predictions_per_seq=2)
    assert masked["masked_lm_weights"].tolist() == [[0.0, 0.0]]
    assert np.array_equal(masked["input_ids"], input_ids)


def test_d1_12_positions_ascend_and_padding_is_zero():
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


def test_d1_11_random_tokens_are_uniform_over_the_whole_vocabulary():
    input_ids, input_mask = batch([128] * 2000, 128, np.random.default_rng(3))
    masked = mask(input_ids, input_mask, mask_fraction=0.0, keep_fraction=0.0)
    shown = np.take_along_axis(masked["input_ids"], masked["masked_lm_positions"], 1)[:, :19].ravel()
    counts = np.bincount(shown, minlength=VOCAB_SIZE)
    expected = len(shown) / VOCAB_SIZE
    assert len(counts) == VOCAB_SIZE  # special tokens too, and nothing beyond
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    # May equal what it replaces.
    same = (shown == masked["masked_lm_ids"][:, :19].ravel()).sum()
    assert abs(same - expected) < 5 * np.sqrt(expected)


def test_every_candidate_is_equally_likely():
    input_ids, input_mask = batch([20] * 20_000, 24, np.random.default_rng(4))
    masked = mask(input_ids, input_mask)
    counts = np.bincount(masked["masked_lm_positions"][:, :3].ravel(), minlength=24)
    assert counts[[0, 10, 19, 20, 21, 22, 23]].tolist() == [0] * 7
    expected = 20_000 * 3 / 17
    chosen = np.delete(counts, [0, 10, 19, 20, 21, 22, 23])
    assert np.abs(chosen - expected).max() < 5 * np.sqrt(expected)


def test_shares_agree_with_the_original():
    """80/10/10 by counts; the original's own 60 instances (722/96/104 of 922) pass the same test."""
    input_ids, input_mask = batch([128] * 500, 128, np.random.default_rng(5))
    input_ids[input_ids > SEP] += 1000 - 5  # a large vocabulary: hardly any random token is the original
    masked = mask(input_ids, input_mask, seed=5, vocab_size=30_000)
    shown = np.take_along_axis(masked["input_ids"], masked["masked_lm_positions"], 1)[:, :19]
    labels = masked["masked_lm_ids"][:, :19]
    ours = ((shown == MASK).sum(), (shown == labels).sum(), ((shown != MASK) & (shown != labels)).sum())
    assert sum(ours) == 500 * 19
    _assert_shares(ours)


def _assert_shares(counts):
    total = sum(counts)
    for count, share in zip(counts, (0.8, 0.1, 0.1), strict=True):
        assert abs(count - share * total) < 4 * np.sqrt(total * share * (1 - share))


@pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is unset: no golden_pretraining")
def test_the_original_s_instances():
    """What is asserted of ours holds for the original's: how many (D1.9), in order (D1.12), and shares."""
    path = pathlib.Path(os.environ["BERT_DATA_DIR"], "golden_pretraining", "create_pretraining_standard.jsonl")
    fates: collections.Counter[str] = collections.Counter()
    for line in path.read_text().splitlines():
        instance = json.loads(line)
        tokens, positions = instance["tokens"], instance["masked_lm_positions"]
        assert len(positions) == num_predictions(np.array(len(tokens)), MaskingSettings())
        assert positions == sorted(positions)
        for position, label in zip(positions, instance["masked_lm_labels"], strict=True):
            shown = tokens[position]
            fates["mask" if shown == "[MASK]" else "same" if shown == label else "random"] += 1
    assert fates == {"mask": 722, "same": 96, "random": 104}
    _assert_shares([fates["mask"], fates["same"], fates["random"]])


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
    wanted = np.minimum(num_predictions(np.array(lengths), MaskingSettings(prob, P)), np.array(lengths) - 3)
    assert np.array_equal(masked["masked_lm_weights"].sum(1), wanted)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"masked_lm_prob": 1.5}, "masked_lm_prob is 1.5"),
        ({"mask_fraction": -0.1}, "mask_fraction is -0.1"),
        ({"mask_fraction": 0.8, "keep_fraction": 0.3}, "mask_fraction 0.8, keep_fraction 0.3"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq is 0"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(MaskingSettings(), **settings)
