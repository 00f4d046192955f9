"""The arrays in the checkpoints of a training, and how far those of two trainings are apart."""

import numpy as np


def arrays(directory, step=12):
    """The arrays of a step's checkpoint by name: weights and the optimizer's."""
    with np.load(directory / "checkpoints" / f"ckpt-{step}.npz") as file:
        return dict(file)


def largest_difference(ours, theirs, step=12):
    """Of the checkpoints of a step in two folders; 0: they are equal to the bit."""
    ours, theirs = arrays(ours, step), arrays(theirs, step)
    assert ours.keys() == theirs.keys() and len(ours) > 10
    return max(np.abs(ours[name].astype(float) - theirs[name]).max() for name in ours)
