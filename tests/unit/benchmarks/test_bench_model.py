"""The batches that the benchmark of training measures."""

import numpy as np
import pytest

from benchmarks.model.bench_model import SHORTEST, Case


@pytest.mark.parametrize(("length", "batch"), [(128, 32), (512, 2)])
def test_padded_rows_have_each_length_and_packed_ones_are_full(length, batch):
    padded = Case("mini", length, batch, rows="padded").inputs()
    assert sorted(padded["input_mask"].sum(1)) == np.linspace(SHORTEST, length, batch).round().tolist()
    packed = Case("mini", length, batch, rows="packed").inputs()
    assert packed["input_ids"].shape == (batch, length)
    assert packed["input_mask"].mean() > 0.9
    assert packed["masked_lm_weights"].sum() > 1.5 * padded["masked_lm_weights"].sum()
