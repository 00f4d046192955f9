"""The same weights give the same outputs, losses and gradients on TensorFlow, here, and on JAX, in another process."""

import json
import re

import numpy as np
import pytest

from bert_keras.models.dropout import random_bits
from tests.support.models import accelerator, every_model
from tests.support.processes import FAST_TO_COMPILE, run_python

TOLERANCE = 1e-5
# These have no operation that another has not: packed, or from left to right with the differences of ModernBERT.
COVERED = {"bert", "modern", "deberta", "left to right"}
ON_JAX = {name: case for name, case in every_model.ON_JAX.items() if name not in COVERED}
# Two programs in one process: the import of Keras and JAX takes seconds.
PROGRAMS = """
import sys
from tests.support.models import accelerator, every_model
every_model.ON_JAX = {name: every_model.CASES[name] for name in sys.argv[3:]}
every_model.main(sys.argv[1])
accelerator.main(sys.argv[2])
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jax")
    paths = folder / "numbers.npz", folder / "checks.json"
    run_python("-c", PROGRAMS, *paths, *ON_JAX, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", XLA_FLAGS=FAST_TO_COMPILE)
    return paths


@pytest.fixture(scope="module")
def on_jax(written):
    """Every number of every model."""
    return np.load(written[0])


@pytest.fixture(scope="module")
def checks(written):
    """{check of accelerator.py: its error, or ""}."""
    return json.loads(written[1].read_text())


@pytest.mark.parametrize("name", accelerator.CHECKS)
def test_on_an_accelerator(checks, name):
    assert not checks[name], checks[name]


def test_jax_runs_without_tensorflow(on_jax):
    """Except for the last models: Keras' Bidirectional serialises its layers, which imports TensorFlow."""
    assert on_jax["backend"] == "jax"
    assert set(on_jax["with_tensorflow"]) <= {"features", "bilm's features"}


def test_both_backends_draw_the_same(on_jax, monkeypatch):
    """Initial weights, ELECTRA's samples, and dropout's bits in calls that an int32 or uint32 cannot count."""
    monkeypatch.setattr(every_model, "ON_JAX", ON_JAX)
    ours = every_model.drawn()
    assert [f"drawn: {key}" for key in ours] == [key for key in on_jax if key.startswith("drawn: ")]
    for key, value in ours.items():
        np.testing.assert_array_equal(value, on_jax[f"drawn: {key}"], err_msg=key)
    first_call = np.asarray(random_bits((2, 3), np.array([3, 0])))
    np.testing.assert_array_equal(ours[f"bits of call {2**32}"], first_call)
    assert (ours[f"bits of call {2**31}"] != first_call).all()


@pytest.mark.parametrize("name", ON_JAX)
def test_both_backends_agree(on_jax, name):
    case = every_model.CASES[name]
    ours = every_model.outputs_and_gradients(case, every_model.random_model(case), case.features())
    theirs = {key.removeprefix(f"{name}: "): on_jax[key] for key in on_jax if key.startswith(f"{name}: ")}
    assert ours.keys() == theirs.keys() and len(ours) > 10
    largest = {}
    for key, value in ours.items():
        scale = 1.0
        if key.startswith("gradient of "):
            # That of its kernel or gamma: a bias that a softmax does not see has 0, and what rounding makes of it.
            partner = re.sub(r"\bbias$", "kernel", re.sub(r"\bbeta$", "gamma", key))
            scale = np.abs(theirs[partner]).max()
        assert scale > 0 or not value.any(), key
        largest[key] = np.abs(value - theirs[key]).max() / (scale or 1.0)
    worst = max(largest, key=largest.get)
    print(f"{len(ours)} arrays, the largest difference {largest[worst]:.1e} ({worst})")
    assert largest[worst] < TOLERANCE, worst
