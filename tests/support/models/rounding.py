"""Bounds for the difference of two float32 results of one formula: the order of sums depends on processor and batch."""

import numpy as np

EPSILON = float(np.finfo(np.float32).eps)


def depth_of(config, tokens):
    """Number of terms of the consecutive sums from ids to hidden states: products and norms of each layer."""
    width, head_size = config.hidden_size, config.hidden_size // config.num_attention_heads
    attention = width + head_size + 2 * tokens + 2 * width
    feed_forward = width + config.intermediate_size + width
    return width + config.num_hidden_layers * (attention + feed_forward)


def assert_equal_but_for_rounding(found, expected, depth, largest=None):
    """Assert that the values differ by at most one rounding per term, `depth` x epsilon x max|expected|.

    That is the worst case of a sum (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). The largest
    difference seen is a seventh of it, between the served and the in-memory model on one AVX2 machine.

    Args:
        found: values.
        expected: values.
        depth: number of terms of the consecutive sums.
        largest: largest summed value, if `expected` has another scale (probabilities computed from logits).
    """
    largest = np.abs(expected).max() if largest is None else largest
    np.testing.assert_allclose(found, expected, rtol=0, atol=depth * EPSILON * largest)
