"""Masking of packed rows: each sequence is masked as in a separate row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens, num_predictions, row_predictions
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = MaskingVocabulary.of(BertTokenizer([*SPECIAL_TOKENS, "a", "b", "##c", "##d"], lower_case=True))


def mask(input_ids, seed, P, sequence_ids, **changes):
    rng, settings = np.random.default_rng(seed), MaskingSettings(**changes)
    return mask_tokens(input_ids, input_ids != PAD, rng, settings, VOCABULARY, P, sequence_ids)


def pack(rows):
    """Rows of lists of sequences, each a list of ids -> input_ids and sequence_ids."""
    T = max(1, *(sum(map(len, row)) for row in rows))
    input_ids, sequence_ids = np.zeros((2, len(rows), T), np.int32)
    for number, row in enumerate(rows):
        ids = [token for sequence in row for token in sequence]
        owners = [i for i, sequence in enumerate(row, 1) for _ in sequence]
        input_ids[number, : len(ids)], sequence_ids[number, : len(ids)] = ids, owners
    return input_ids, sequence_ids


@given(
    lengths=st.lists(st.lists(st.integers(1, 20), max_size=4), min_size=1, max_size=4),
    unit=st.sampled_from(["token", "whole_word", "ngram", "span"]),
    rounding=st.sampled_from(["nearest", "up", "stochastic"]),
    special_tokens=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_packed_sequences_are_masked_like_separate_rows(lengths, unit, rounding, special_tokens, seed):
    rng = np.random.default_rng(seed)
    rows = [[[CLS, *rng.integers(5, 9, length), SEP] for length in row] for row in lengths]
    input_ids, sequence_ids = pack(rows)
    singles = [sequence for row in rows for sequence in row]
    changes = {
        "unit": unit,
        "rounding": rounding,
        "special_tokens": special_tokens,
        "masked_lm_prob": 0.4,
        "max_predictions_per_seq": 4,
    }
    P = row_predictions(input_ids.shape[1], 4, MaskingSettings(**changes))
    packed = mask(input_ids, seed, P, sequence_ids, **changes)
    weights = packed["masked_lm_weights"] > 0
    assert weights.shape == (len(rows), P)
    assert (np.diff(packed["masked_lm_positions"], axis=1)[weights[:, 1:]] > 0).all()
    if not singles:
        return
    single_ids, ones = pack([[sequence] for sequence in singles])
    single_ids, ones = single_ids[:, : max(map(len, singles))], ones[:, : max(map(len, singles))]
    alone = mask(single_ids, seed, 4, None, **changes)

    def found(features, owners):
        row, slot = np.nonzero(features["masked_lm_weights"])
        position = features["masked_lm_positions"][row, slot]
        start = [np.flatnonzero(owners[r] == owners[r, p])[0] for r, p in zip(row, position, strict=True)]
        return (position - start).tolist(), features["input_ids"][row, position].tolist()

    assert found(packed, sequence_ids) == found(alone, ones)


def test_adjacent_packed_sequences_do_not_share_replacement_draws():
    """[CLS] of one and [SEP] of the next sequence are neighbours: with special tokens masked too, two spans."""
    rows = [[[5] * 4, [6] * 4]] * 500
    input_ids, sequence_ids = pack(rows)
    changes = {"unit": "span", "masked_lm_prob": 1.0, "mask_fraction": 0.5, "keep_fraction": 0.5}
    masked = mask(input_ids, 0, 8, sequence_ids, **changes)["input_ids"]
    first, second = (masked[:, :4] == MASK), (masked[:, 4:8] == MASK)
    assert (first.all(1) | ~first.any(1)).all() and (second.all(1) | ~second.any(1)).all()
    assert 150 < (first[:, 0] != second[:, 0]).sum() < 350


def test_too_many_predictions_for_a_row_are_refused():
    input_ids, sequence_ids = pack([[[5] * 10], [[5] * 10, [6] * 10]])
    with pytest.raises(ValueError, match="row 1 has 4 predictions; max_predictions is 3"):
        mask(input_ids, 0, 3, sequence_ids)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    prob=st.floats(0, 1),
    most=st.integers(1, 60),
    rounding=st.sampled_from(["nearest", "up", "stochastic"]),
)
def test_row_predictions_are_enough_for_any_row(lengths, prob, most, rounding):
    settings = MaskingSettings(masked_lm_prob=prob, max_predictions_per_seq=most, rounding=rounding)
    P = row_predictions(sum(lengths), len(lengths), settings)
    counts = num_predictions(np.array(lengths), np.array(lengths), settings, np.random.default_rng(0))
    assert counts.sum() <= P <= len(lengths) * most
