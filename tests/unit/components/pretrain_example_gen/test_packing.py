"""Packing: every sequence is in one row, rows are not too long or too full, and contain the unpacked sequences."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.example_format import ExampleLayout
from components.pretrain_example_gen.packing import pack_features, pack_sequences

T = 32


@given(st.lists(st.integers(1, T), max_size=60), st.integers(2, 5))
def test_every_sequence_is_in_one_row_with_room_for_it(lengths, max_sequences):
    lengths = np.array(lengths, np.int64)
    rows = pack_sequences(lengths, T, max_sequences)
    assert rows.dtype == np.int32 and rows.shape[1] == max_sequences
    assert sorted(rows[rows >= 0].tolist()) == list(range(len(lengths)))
    for row in rows:
        used = row[row >= 0]
        assert len(used) and np.array_equal(row[: len(used)], used)
        assert lengths[used].sum() <= T
        assert (np.diff(lengths[used]) <= 0).all()
    fewest = max(-(-len(lengths) // max_sequences), -(-int(lengths.sum()) // T))
    assert len(rows) >= fewest


@pytest.mark.parametrize(
    ("lengths", "max_sequences", "rows"),
    [
        # Shortest pack first: 6 is added to 20, not to 25.
        ([20, 25, 6], 2, [[20, 6], [25]]),
        ([20, 12, 20, 12, 32], 2, [[20, 12], [20, 12], [32]]),
        ([10] * 6, 3, [[10] * 3] * 2),
        ([10] * 6, 2, [[10] * 2] * 3),
        # 15 + 15 would leave no place for two of the short ones: enough rows are opened in advance.
        ([15, 15, 1, 1, 1, 1], 3, [[15, 1, 1], [15, 1, 1]]),
    ],
)
def test_worked_examples(lengths, max_sequences, rows):
    lengths = np.array(lengths)
    packed = pack_sequences(lengths, T, max_sequences)
    assert sorted(lengths[row[row >= 0]].tolist() for row in packed) == rows


def test_rows_are_nearly_full_and_packing_is_fast():
    """The paper's figure for Wikipedia, S = 3: half of all slots are used before packing. Here: 63 %."""
    lengths = np.minimum(np.random.default_rng(0).exponential(100, 200_000).astype(int) + 5, 128)
    started = time.process_time()
    rows = pack_sequences(lengths, 128, 3)
    assert time.process_time() - started < 0.4  # 2 us per sequence
    before, after = lengths.sum() / (len(lengths) * 128), lengths.sum() / (len(rows) * 128)
    assert before < 0.64
    assert after > 0.965


def unpack(packed, row, slot, P):
    """The sequence in a slot of a row, as a separate row."""
    own = packed["sequence_ids"][row] == slot + 1
    (columns,) = np.nonzero(own)
    assert np.array_equal(packed["position_ids"][row, columns], np.arange(len(columns)))
    assert np.array_equal(columns, np.arange(columns[0], columns[0] + len(columns)))
    features = {}
    for name in ("input_ids", "input_mask", "segment_ids"):
        features[name] = np.pad(packed[name][row, columns], (0, T - len(columns))).tolist()
    positions = packed["masked_lm_positions"][row]
    predictions = (packed["masked_lm_weights"][row] > 0) & own[positions]
    for name, offset in (("masked_lm_positions", columns[0]), ("masked_lm_ids", 0), ("masked_lm_weights", 0)):
        values = packed[name][row, predictions] - offset
        features[name] = np.pad(values, (0, P - len(values))).tolist()
    assert packed["next_sentence_weights"][row, slot] == 1
    assert packed["next_sentence_positions"][row, slot] == columns[0]
    features["next_sentence_labels"] = [packed["next_sentence_labels"][row, slot]]
    return features


@given(st.lists(st.integers(3, T), min_size=1, max_size=30), st.integers(0, 1000))
def test_unpacking_restores_the_sequences(lengths, seed):
    P, N, lengths = 3, len(lengths), np.array(lengths)
    rng = np.random.default_rng(seed)
    is_token = np.arange(T) < lengths[:, None]
    weights = (np.arange(P) < rng.integers(0, P + 1, N)[:, None]).astype(np.float32)
    features = {
        "input_ids": np.where(is_token, rng.integers(1, 99, (N, T)), 0).astype(np.int32),
        "input_mask": is_token.astype(np.uint8),
        "segment_ids": np.where(is_token, rng.integers(0, 2, (N, T)), 0).astype(np.uint8),
        "masked_lm_positions": (weights * [0, 1, 2]).astype(np.int32),
        "masked_lm_ids": (weights * rng.integers(1, 99, (N, P))).astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, (N, 1)).astype(np.uint8),
    }
    rows = pack_sequences(lengths, T, 3)
    in_rows = rows[rows >= 0]
    layout = ExampleLayout("mlm_nsp", T, 9, 3, "static")
    packed = pack_features(
        {name: values[in_rows] for name, values in features.items()}, (rows >= 0).sum(1), layout, pad_id=99
    )
    of_layout = {name: (len(rows), feature.length) for name, feature in layout.features(masked=True).items()}
    assert {name: values.shape for name, values in packed.items()} == of_layout
    assert (packed["input_ids"][packed["input_mask"] == 0] == 99).all()
    for row, slot in zip(*np.nonzero(rows >= 0), strict=True):
        expected = {name: values[rows[row, slot]].tolist() for name, values in features.items()}
        assert unpack(packed, row, slot, P) == expected
    used = (rows >= 0).sum(1)
    assert np.array_equal(packed["next_sentence_weights"].sum(1), used)
    assert np.array_equal(packed["sequence_ids"].max(1), used)
    assert np.array_equal(packed["sequence_ids"] > 0, packed["input_mask"] > 0)
    assert packed["masked_lm_weights"].sum() == weights.sum()
