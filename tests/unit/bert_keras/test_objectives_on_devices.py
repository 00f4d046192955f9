"""Each objective's gradient is that of the global batch, however it is cut up."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
OBJECTIVES = ("mlm_nsp", "mlm_nsp, packed", "mlm", "electra", "span_boundary", "left_to_right", "bidirectional")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    out = tmp_path_factory.mktemp("gradients") / "numbers.npz"
    paths = [str(HERE), str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(HERE / "objectives_on_two_devices.py"), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-3000:]
    return dict(np.load(out))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_d3_the_gradient_over_two_devices_is_that_of_one(numbers, objective):
    """To 1e-5 of the largest; the halves of the batch weigh differently, so a mean of means would differ."""
    first, second = numbers[f"{objective}: totals"]
    assert (np.abs(first - second) > 0.1 * (first + second)).any()
    ones = {name.split(": ")[2]: x for name, x in numbers.items() if name.startswith(f"{objective}: 1:")}
    twos = {name.split(": ")[2]: x for name, x in numbers.items() if name.startswith(f"{objective}: 2:")}
    assert len(ones) > 10 and ones.keys() == twos.keys()
    for name, gradient in ones.items():
        assert np.abs(gradient).max() > 0 or name.endswith("key/bias"), name
        largest = max(1.0, np.abs(gradient).max())
        np.testing.assert_allclose(twos[name], gradient, atol=1e-5 * largest, err_msg=name)
