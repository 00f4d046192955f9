"""The runs that others are compared with."""

import functools

import pytest


@pytest.fixture(scope="session")
def finished(examples, tmp_path_factory):
    """`finished(model, **changes)`: the folder of a run of twelve steps on TensorFlow, made once for each argument.

    By default on one device and with dropout; changes are those of `tests.support.models.small_training.loop`.
    """
    from tests.support.models.small_training import MODEL, loop

    @functools.cache
    def finished(model=MODEL, **changes):
        directory = tmp_path_factory.mktemp("finished")
        loop(examples, directory, model, **changes).run()
        return directory

    return finished


@pytest.fixture(scope="session")
def quiet_losses(finished):
    """The losses of a run without dropout, which those on other devices or in parts have too."""
    from tests.support.models.small_training import QUIET, losses

    return losses(finished(QUIET))
