"""What the benchmarks of training compare: useful tokens, round by round, of batches with padding and packed."""

import importlib

import numpy as np
import pytest


@pytest.fixture(scope="module")
def modules():
    return importlib.import_module("benchmarks.harness.harness"), importlib.import_module(
        "benchmarks.model.model_config"
    )


def contestant(contest, useful_tokens, seconds):
    made = contest.Contestant.__new__(contest.Contestant)
    made.about = {"useful_tokens": useful_tokens}
    made.turns = [{"cpu": each} for each in seconds]
    return made


def test_a_ratio_is_of_useful_tokens_in_the_same_round(modules):
    ours, theirs = contestant(modules[0], 200, [1, 2, 8]), contestant(modules[0], 100, [3, 2, 4])
    # Twice the tokens, in 1/3, 1 and 2 times the seconds: 6, 2 and 1 times as many a second.
    assert ours.over(theirs, "cpu") == [2.0, 1.0, 6.0]


@pytest.mark.parametrize(("length", "batch"), [(128, 32), (512, 8), (512, 2)])
def test_padded_rows_have_each_length_and_packed_ones_are_full(modules, length, batch):
    Case, shortest = modules[1].Case, modules[1].SHORTEST
    padded = Case("mini", length, batch, rows="padded").inputs()
    assert sorted(padded["input_mask"].sum(1)) == np.linspace(shortest, length, batch).round().tolist()
    packed = Case("mini", length, batch, rows="packed").inputs()
    assert packed["input_ids"].shape == (batch, length)
    assert packed["input_mask"].mean() > 0.9
    assert packed["masked_lm_weights"].sum() > 1.5 * padded["masked_lm_weights"].sum()
