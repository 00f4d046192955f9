"""Initial weights: their distributions, the same bits for a seed, and their configuration."""

import keras
import numpy as np
import pytest
from scipy import stats

from bert_keras.models import dropout as initializers

GOLDEN = [[0.003697181586176157, 0.0028552513103932142], [-0.010253733955323696, -0.0019342161249369383]]
DRAWS = {
    "normal": (initializers.Normal(3, 0.5), stats.norm(scale=0.5)),
    "truncated": (initializers.TruncatedNormal(3, 0.02), stats.truncnorm(-2, 2, scale=0.02)),
    "uniform": (initializers.Uniform(3, 1.5), stats.uniform(-1.5, 3)),
    "glorot": (initializers.GlorotUniform(3), stats.uniform(-0.1, 0.2)),  # 6 / (200 + 400) = 0.1^2
}


@pytest.mark.parametrize("name", DRAWS)
def test_distributions(name):
    """Kolmogorov and Smirnov's test of 80,000 values; the seed is fixed, so the result is."""
    initializer, distribution = DRAWS[name]
    values = np.asarray(initializer((200, 400)))
    assert stats.kstest(values.ravel(), distribution.cdf).pvalue > 0.01
    # Columns and rows, too.
    assert np.abs(np.corrcoef(values)[0, 1:]).max() < 5 / 400**0.5
    assert values.dtype == np.float32


def test_a_kernel_of_a_convolution_has_the_inputs_of_all_its_places():
    """3 places, 800 inputs, 200 outputs: up to sqrt(6 / (2400 + 600))."""
    values = np.abs(initializers.GlorotUniform(1)((3, 800, 200)))
    assert values.max() == pytest.approx((6 / 3000) ** 0.5, rel=1e-4)


@pytest.mark.parametrize("shape", [(6, 24), (24, 6), (8, 8)])
def test_orthogonal(shape):
    values = np.asarray(initializers.Orthogonal(2)(shape))
    product = values @ values.T if shape[0] <= shape[1] else values.T @ values
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-6)


def test_signs_of_orthogonal_matrices_are_even():
    """Without the correction LAPACK makes the diagonal of r negative, and the mean of the first element is -0.8."""
    corner = [np.asarray(initializers.Orthogonal(seed)((2, 2)))[0, 0] for seed in range(400)]
    assert abs(np.mean(corner)) < 4 * 0.71 / 400**0.5


def test_fixed_values():
    """A change, or another NumPy that draws otherwise, alters every seeded training."""
    values = np.asarray(initializers.TruncatedNormal(3, 0.02)((2, 2)))
    np.testing.assert_array_equal(values, np.array(GOLDEN, "float32"))


@pytest.mark.parametrize("initializer", [*(i for i, _ in DRAWS.values()), initializers.Orthogonal(3)])
def test_keras_saves_and_loads_them(initializer):
    loaded = keras.initializers.deserialize(keras.initializers.serialize(initializer))
    assert type(loaded) is type(initializer)
    np.testing.assert_array_equal(loaded((4, 8)), initializer((4, 8)))
    assert keras.backend.standardize_dtype(loaded((4, 8), "bfloat16").dtype) == "bfloat16"


def test_seeds_differ():
    first, second = (np.asarray(initializers.TruncatedNormal(seed, 1.0)((50, 50))) for seed in (1, 2))
    assert (first != second).all()
