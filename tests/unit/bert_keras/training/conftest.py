"""The run that others are compared with."""

import functools

import pytest


@pytest.fixture(scope="session")
def quiet_folder(examples, tmp_path_factory):
    """`quiet_folder()` has the log of twelve steps on one device without dropout; made once an optimizer."""
    from tests.support.models.small_training import QUIET, RUN, loop

    @functools.cache
    def quiet_folder(optimizer=RUN.optimizer):
        directory = tmp_path_factory.mktemp("quiet")
        loop(examples, directory, QUIET, optimizer=optimizer).run()
        return directory

    return quiet_folder


@pytest.fixture(scope="session")
def quiet_losses(quiet_folder):
    """The losses in `quiet_folder`."""
    from tests.support.models.small_training import losses

    return lambda *optimizer: losses(quiet_folder(*optimizer))
