"""ELECTRA's draws, replacements and sums, computed by hand."""

import keras
import numpy as np
import pytest

from bert_keras.models import electra
from bert_keras.models.electra import put, sample
from bert_keras.objectives.electra import OBJECTIVE, example_sums
from tests.support.models.rounding import EPSILON
from tests.support.models.whole_loss import whole


def test_a_position_drawn_twice_gets_the_mean_rounded_down():
    inputs = {
        "input_ids": np.array([[7, 8, 9]]),
        "masked_lm_positions": np.array([[2, 2, 1, 2]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 1.0, 0.0]]),
    }
    np.testing.assert_array_equal(put(inputs, np.array([[20, 25, 3, 1000]])), [[7, 3, 22]])


def test_samples_follow_the_softmax():
    """Logits log(1, 2, 3, 4): shares .1, .2, .3, .4 of 20,000 draws; the tolerance is four standard deviations."""
    logits = np.tile(np.log([1.0, 2.0, 3.0, 4.0]).astype("float32"), (20_000, 1))
    shares = np.bincount(np.asarray(sample(logits, keras.random.SeedGenerator(1))), minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=4 * 0.0035)


@pytest.mark.parametrize(("bits", "noise"), [(0, 22.87), (2**32 - 1, -2.81)])
def test_the_noise_is_finite_at_both_ends_of_the_bits(bits, noise, monkeypatch):
    """The least and the largest bits: -log(-log(1 - u)) at u = 2^-33, and at 1 - 2^-24, the last float32 below 1."""
    monkeypatch.setattr(electra, "random_bits", lambda shape, seed: np.full(shape, bits, "uint32"))
    monkeypatch.setattr(electra.ops, "argmax", lambda noisy, axis: noisy)
    monkeypatch.setattr(electra.ops, "cast", lambda x, dtype: np.asarray(x, dtype if dtype != "int32" else "float32"))
    drawn = sample(np.zeros((2, 3), "float32"), keras.random.SeedGenerator(1))
    np.testing.assert_allclose(drawn, noise, atol=0.01)


def test_equal_logits_of_a_large_vocabulary_are_drawn_alike():
    """Halves of 30,522 tokens, 800 draws; noise that ties would prefer the first. Four deviations."""
    drawn = np.asarray(sample(np.zeros((800, 30_522), "float32"), keras.random.SeedGenerator(1)))
    assert abs((drawn < 30_522 // 2).mean() - 0.5) < 4 * 0.5 / 800**0.5
    assert len(np.unique(drawn)) > 775  # expected: 790 of 30,522 at 800 draws


def test_the_seed_determines_the_samples_and_calls_differ():
    def drawn(seed):
        generator = keras.random.SeedGenerator(seed)
        return [np.asarray(sample(np.zeros((50, 30), "float32"), generator)) for _ in range(2)]

    first, same, other = drawn(1), drawn(1), drawn(2)
    np.testing.assert_array_equal(first, same)
    assert (first[0] != first[1]).any() and (first[0] != other[0]).any()


def test_sums_by_hand():
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
    assert tuple(sums) == OBJECTIVE.sums
    expected = {"mlm_nll": -np.log(3 / 8), "mlm_correct": 1, "mlm_weight": 2}
    expected |= {"disc_nll": -np.log(3 / 4 * 3 / 4 * 1 / 4), "disc_correct": 2, "disc_weight": 3}
    assert sums == pytest.approx(expected, rel=8 * EPSILON)
    # The loss adds 1e-6 to its denominators.
    assert float(whole(OBJECTIVE.loss, sums)) == pytest.approx(-np.log(3 / 8) / 2 + 50 * -np.log(9 / 64) / 3, rel=1e-5)


def test_the_loss_without_tokens_is_zero():
    assert float(whole(OBJECTIVE.loss, dict.fromkeys(OBJECTIVE.sums, 0.0))) == 0.0
