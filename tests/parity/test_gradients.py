"""Outputs and the gradient of every weight equal those of `transformers`, for equal weights and without dropout.

In float32 of the loss that either trains with; in float64, where errors of rounding hide nothing, of the sum of all
logits, each times a number of its own.
"""

import numpy as np
import pytest
import tensorflow as tf
import torch

from tests.support.models.variants_of_transformers import as_here

# Of the norm of a gradient's difference to its own; and of an output.
TOLERANCE = {"float32": 1e-5, "float64": 1e-13}
OUTPUT_TOLERANCE = {"float32": 2e-5, "float64": 1e-13}


def check_outputs(pair, dtype):
    """Compares them at tokens; returns for each a factor a number, 0 at padding."""
    mask, rng, factors = pair.features["input_mask"], np.random.default_rng(5), {}
    ours = pair.our_outputs(pair.features)
    for name, theirs in pair.their_outputs(pair.features).items():
        theirs = theirs.detach().numpy()
        of_token = theirs.shape[:2] == mask.shape
        real = mask == 1 if of_token else np.ones(theirs.shape[:2], bool)
        difference = np.abs(np.asarray(ours[name]) - theirs)[real].max()
        print(f"{name}: the largest difference {difference:.1e}")
        assert difference < OUTPUT_TOLERANCE[dtype], name
        factors[name] = rng.normal(size=theirs.shape) * (real if theirs.ndim == 2 else real[..., None])
    return factors


def gradients(pair, loss, their_loss):
    """Of each weight: relative norm of the difference, by name. And both losses."""
    with tf.GradientTape() as tape:
        ours = loss()
    variables = list(pair.variables.values())
    found = tape.gradient(ours, [v.value for v in variables], unconnected_gradients="zero")
    theirs = their_loss()
    pair.theirs.zero_grad()
    theirs.backward()
    expected = [as_here(name, p.grad.numpy()) for name, p in named_in_order(pair)]
    found = [np.asarray(tf.convert_to_tensor(gradient)) for gradient in found]
    assert all(a.dtype == b.dtype and a.shape == b.shape for a, b in zip(found, expected, strict=True))
    return dict(zip(pair.variables, zip(found, expected, strict=True), strict=True)), float(ours), float(theirs)


def named_in_order(pair):
    parameters = dict(pair.theirs.named_parameters())
    return [(name, parameters[name]) for name in pair.variables]


def check(pair, dtype, found):
    """Relative to the tensor's own gradient, but for the biases of keys: theirs is 0, and all else is rounding."""
    largest = {}
    for name, (ours, theirs) in found.items():
        difference, norm = np.linalg.norm(ours - theirs), np.linalg.norm(theirs)
        if name.endswith(("attention.self.key.bias", "attn.k.bias", "pos_key_proj.bias")):
            norm = np.linalg.norm(found[name.replace("bias", "weight")][1])
            assert np.linalg.norm(theirs) < TOLERANCE[dtype] * norm
        assert norm > 0, name
        largest[name] = difference / norm
    worst = max(largest, key=largest.get)
    print(f"{len(found)} gradients, the largest relative difference {largest[worst]:.1e} ({worst})")
    assert largest[worst] < TOLERANCE[dtype], worst


@pytest.mark.parametrize("dtype", ["float32"])
def test_gradients_of_the_loss(pair, dtype):
    features = pair.features
    check_outputs(pair, dtype)
    found, ours, theirs = gradients(pair, lambda: pair.our_loss(features), lambda: pair.their_loss(features))
    print(f"loss {ours:.6f}, relative difference {abs(ours - theirs) / theirs:.1e}")
    assert ours == pytest.approx(theirs, rel=1e-6)
    check(pair, dtype, found)


@pytest.mark.parametrize("dtype", ["float64"])
def test_outputs_and_gradients_in_float64(pair, dtype):
    features, factors = pair.features, check_outputs(pair, dtype)
    found, _, _ = gradients(
        pair,
        lambda: sum(tf.reduce_sum(factor * pair.our_outputs(features)[k]) for k, factor in factors.items()),
        lambda: sum(
            (torch.from_numpy(factor) * pair.their_outputs(features)[k]).sum() for k, factor in factors.items()
        ),
    )
    check(pair, dtype, found)
