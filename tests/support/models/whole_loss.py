"""Losses of whole batches: the totals that the training loop sums beforehand are the sums of the weights."""


def whole(loss, sums):
    """An objective's loss of a whole batch, from its summed `example_sums`."""
    return loss(sums, tuple(value for name, value in sums.items() if name.endswith("_weight")))
