"""Checkpoints of a run: a write that fails keeps the ones before."""

import resource

import pytest
import tensorflow as tf

from bert_keras.errors import StageError
from bert_keras.training.checkpoints import Checkpoints


@pytest.mark.parametrize(("saved", "told"), [(True, "the one before it is intact"), (False, "it is the first")])
def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, saved, told):
    """A limit on the size of files stands for the full disk: the write fails in the middle."""
    weights = tf.Variable(tf.ones(10_000))
    checkpoint = tf.train.Checkpoint(weights=weights)
    checkpoints = Checkpoints(checkpoint, checkpoint, str(tmp_path), 3)
    if saved:
        checkpoints.save(6)
    weights.assign(tf.zeros(10_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StageError, match=rf"the checkpoint of step 12 could .* \(.*\); {told}.*: free space"):
            checkpoints.save(12)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    checkpoints.restore_newest()
    assert float(weights[0]) == saved
