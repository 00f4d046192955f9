"""Checkpoints of a run: a write that fails keeps the ones before; another model's are refused."""

import resource

import numpy as np
import pytest

from bert_keras.errors import StageError
from bert_keras.training.checkpoints import Checkpoints
from tests.support.models.small_training import QUIET, loop


class Weights:
    """The state of a training: 10,000 equal numbers."""

    def __init__(self):
        self.value = 1.0

    def arrays(self):
        return {"step": np.asarray(6), "model/0/weights": np.full(10_000, self.value, "float32")}

    def set_arrays(self, arrays):
        self.value = float(arrays["model/0/weights"][0])


@pytest.mark.parametrize(("saved", "told"), [(True, "the one before it is intact"), (False, "it is the first")])
def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, saved, told):
    """A limit on the size of files stands for the full disk: the write fails in the middle."""
    weights = Weights()
    checkpoints = Checkpoints(weights, str(tmp_path), 3)
    if saved:
        checkpoints.save(6)
    weights.value = 0.0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StageError, match=rf"the checkpoint of step 12 could .* \(.*\); {told}.*: free space"):
            checkpoints.save(12)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["ckpt-6.npz"] * saved
    checkpoints.restore_newest()
    assert weights.value == saved


def test_arrays_of_another_model_are_not_assigned(examples, tmp_path):
    """Two layers of the same shapes are told apart by their paths, and nothing is assigned in part."""
    run = loop(examples, tmp_path, QUIET)
    arrays, names = run.steps.arrays(), list(run.steps.arrays())
    weights = run.model.get_weights()
    with pytest.raises(ValueError, match=r"it holds \('model/6/.*other/kernel', \(32,\)\) where .*'model/6/"):
        other = [
            name.rpartition("/")[0] + "/other/kernel" if number == 7 else name for number, name in enumerate(names)
        ]
        run.steps.set_arrays({name: array + 1 for name, array in zip(other, arrays.values(), strict=True)})
    for ours, theirs in zip(run.model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
