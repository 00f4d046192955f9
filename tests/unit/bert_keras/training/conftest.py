"""The run that others are compared with."""

import functools

import pytest


@pytest.fixture(scope="session")
def quiet_losses(examples, tmp_path_factory):
    """`quiet_losses()` are those of twelve steps on one device without dropout; made once an optimizer."""
    from tests.support.models.small_training import QUIET, RUN, loop, losses

    @functools.cache
    def quiet_losses(optimizer=RUN.optimizer):
        directory = tmp_path_factory.mktemp("quiet")
        loop(examples, directory, QUIET, optimizer=optimizer).run()
        return losses(directory)

    return quiet_losses
