"""ELECTRA's draws, replacements and sums (FACTS D8), worked out by hand."""

import keras
import numpy as np
import pytest

from bert_keras.objectives.electra import SUMS, example_sums, loss, put, sample


def test_d8_a_position_drawn_twice_gets_the_mean_rounded_down():
    inputs = {
        "input_ids": np.array([[7, 8, 9]]),
        "masked_lm_positions": np.array([[2, 2, 1, 2]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 1.0, 0.0]]),
    }
    np.testing.assert_array_equal(put(inputs, np.array([[20, 25, 3, 1000]])), [[7, 3, 22]])


def test_d8_samples_follow_the_softmax():
    """Logits log(1, 2, 3, 4): shares .1, .2, .3, .4 of 20,000, whose deviation is at most .0035."""
    logits = np.tile(np.log([1.0, 2.0, 3.0, 4.0]).astype("float32"), (20_000, 1))
    shares = np.bincount(np.asarray(sample(logits, keras.random.SeedGenerator(1))), minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.015)


def test_the_seed_decides_the_samples_and_each_call_draws_anew():
    def drawn(seed):
        generator = keras.random.SeedGenerator(seed)
        return [np.asarray(sample(np.zeros((50, 30), "float32"), generator)) for _ in range(2)]

    first, same, other = drawn(1), drawn(1), drawn(2)
    np.testing.assert_array_equal(first, same)
    assert (first[0] != first[1]).any() and (first[0] != other[0]).any()


def test_d8_sums_by_hand():
    """T = 4, the last is padding; at 1 the draw is wrong, at 2 right. Probabilities of "replaced": 1/4, 3/4, 3/4."""
    logit = np.log(3)
    outputs = {
        "mlm_logits": np.array([[[0, 0], [0, logit]]], "float32"),
        "sampled_ids": np.array([[5, 0, 1, 0]]),
        "discriminator_logits": np.array([[-logit, logit, logit, 50.0]], "float32"),
    }
    labels = {
        "input_ids": np.array([[5, 4, 4, 0]]),
        "input_mask": np.array([[1, 1, 1, 0]]),
        "masked_lm_positions": np.array([[1, 2]]),
        "masked_lm_ids": np.array([[1, 1]]),
        "masked_lm_weights": np.array([[1.0, 1.0]], "float32"),
    }
    sums = {name: float(value[0]) for name, value in example_sums(outputs, labels).items()}
    assert tuple(sums) == SUMS
    expected = {"mlm_nll": -np.log(3 / 8), "mlm_correct": 1, "mlm_weight": 2}
    expected |= {"disc_nll": -np.log(3 / 4 * 3 / 4 * 1 / 4), "disc_correct": 2, "disc_weight": 3}
    assert sums == pytest.approx(expected, rel=1e-6)
    assert loss(sums) == pytest.approx(-np.log(3 / 8) / 2 + 50 * -np.log(9 / 64) / 3, rel=1e-5)


def test_no_tokens_are_no_division_by_zero():
    assert loss(dict.fromkeys(SUMS, 0.0)) == 0.0
