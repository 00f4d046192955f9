"""Checkpoints of a run: a write that fails keeps the ones before; another model's are refused."""

import re
import resource

import numpy as np
import pytest

from bert_keras.errors import InputError, StageError
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


def test_the_newest_checkpoints_are_kept(tmp_path):
    checkpoints = Checkpoints(Weights(), str(tmp_path), 2)
    for step in (6, 12, 100):
        checkpoints.save(step)
    assert {path.stem for path in (tmp_path / "checkpoints").iterdir()} == {"ckpt-12", "ckpt-100"}


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(tmp_path, capfd):
    weights = Weights()
    checkpoints = Checkpoints(weights, str(tmp_path), 3)
    for step, weights.value in ((6, 0.5), (12, 1.0)):
        checkpoints.save(step)
    data = tmp_path / "checkpoints" / "ckpt-12.npz"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0x40
    data.write_bytes(content)
    checkpoints.restore_newest()
    assert weights.value == 0.5
    assert re.search(r"checkpoints/ckpt-12.npz is damaged \(.*\); the one before it is used", capfd.readouterr().err)


@pytest.mark.parametrize("size", [0, 20, 1000])
def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_again(tmp_path, size):
    checkpoints = Checkpoints(Weights(), str(tmp_path), 3)
    for step in (6, 12):
        checkpoints.save(step)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(StageError, match=r"all 2 checkpoints of .*checkpoints are damaged; remove the folder"):
        checkpoints.restore_newest()


def test_a_folder_that_tensorflow_reads_as_a_pattern_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"a\[b\]: TensorFlow reads .*; train in another folder"):
        Checkpoints(Weights(), str(tmp_path / "a[b]"), 3)


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
