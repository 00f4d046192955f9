"""Each objective's gradient is that of the global batch, for any split, on both backends."""

import functools

import numpy as np
import pytest

from tests.support.processes import run_python

# A loss of two sums that rows have several of, one that compares rows, and one with a teacher; the others are slow.
FIRST = ("mlm_nsp, packed", "similarity", "gpt_bert, taught")
OTHERS = ("electra", "mlm_nsp", "mlm", "span_boundary", "left_to_right", "gpt_bert", "bidirectional")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """`numbers(names, backend)` are those of some objectives, computed once in a process of their own."""

    @functools.cache
    def numbers(names, backend):
        out = tmp_path_factory.mktemp("gradients") / "numbers.npz"
        words = "-m", "tests.support.models.objectives_on_two_devices", out, *names
        run_python(*words, KERAS_BACKEND=backend, JAX_PLATFORMS="cpu")
        return dict(np.load(out))

    return numbers


each_objective = pytest.mark.parametrize(
    ("names", "objective"),
    [pytest.param(FIRST, name, id=name) for name in FIRST]
    + [pytest.param(OTHERS, name, marks=pytest.mark.slow, id=name) for name in OTHERS],
)


@pytest.mark.programs
@each_objective
def test_the_gradient_over_two_devices_is_that_of_one(numbers, names, objective):
    """To 1e-5 of the largest; the halves of the batch weigh differently, so a mean of means would differ."""
    numbers = numbers(names, "tensorflow")
    first, second = numbers[f"{objective}: totals"]
    assert (np.abs(first - second) > 0.1 * (first + second)).any()
    ones = {name.split(": ")[2]: x for name, x in numbers.items() if name.startswith(f"{objective}: 1:")}
    twos = {name.split(": ")[2]: x for name, x in numbers.items() if name.startswith(f"{objective}: 2:")}
    assert len(ones) > 10 and ones.keys() == twos.keys()
    for name, gradient in ones.items():
        assert np.abs(gradient).max() > 0 or name.endswith("key/bias"), name
        # Key biases have a gradient of 0 up to rounding, so their bound is that of a gradient of 1.
        largest = max(1.0, np.abs(gradient).max())
        np.testing.assert_allclose(twos[name], gradient, atol=1e-5 * largest, err_msg=name)


@pytest.mark.programs
@each_objective
def test_the_gradient_on_jax_is_that_of_tensorflow(numbers, names, objective):
    """On one device and on two, to 1e-5 of the largest."""
    ours, theirs = (
        {name: x for name, x in numbers(names, backend).items() if name.startswith(f"{objective}: ")}
        for backend in ("jax", "tensorflow")
    )
    assert len(ours) > 20 and ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        largest = max(1.0, np.abs(gradient).max())
        np.testing.assert_allclose(theirs[name], gradient, atol=1e-5 * largest, err_msg=name)


@pytest.mark.programs
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
@pytest.mark.parametrize("devices", [1, 2])
def test_the_gradient_in_parts_is_that_of_the_whole_batch(numbers, backend, devices):
    """Of vectors with negatives from the batch, in four parts (GradCache), to 2e-6 of the largest."""
    numbers = numbers(FIRST, backend)
    whole, parts = (
        {name.split(": ")[2]: x for name, x in numbers.items() if name.startswith(f"similarity: {how}:")}
        for how in ("1", f"{devices} in 4")
    )
    assert len(whole) > 10 and whole.keys() == parts.keys()
    for name, gradient in whole.items():
        largest = max(1.0, np.abs(gradient).max())
        np.testing.assert_allclose(parts[name], gradient, atol=2e-6 * largest, err_msg=name)
