"""Errors that a user sees as one line; any other exception is a defect or a failure of the machine."""

import typing
from collections.abc import Callable
from typing import Any


class InputError(ValueError):
    """Unusable input; the message names it, what was expected, and what to do. Exit code 2."""


class StageError(RuntimeError):
    """A stage cannot continue; the message names the reason and what to do. Exit code 1."""


class Diverged(StageError):
    """The loss or gradient of a training is not finite; a retry would end the same way."""


class Preempted(RuntimeError):
    """SIGTERM or Ctrl-C interrupted a training; its checkpoint is written. Exit code 4."""


def check_settings(section: str, settings: object, rule: str, keeps: Callable[[Any], bool], *names: str) -> None:
    """ValueError for the first of the named settings that breaks the rule, as "at least 1", that `keeps` checks."""
    for name in names:
        if not keeps(value := getattr(settings, name)):
            raise ValueError(f"{section}.{name} is {value!r}; it must be {rule}")


def check_choices(section: str, settings: object) -> None:
    """ValueError for the first field whose value its `Literal` type does not list."""
    for name, kind in typing.get_type_hints(type(settings)).items():
        choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
        if choices and (value := getattr(settings, name)) not in choices:
            raise ValueError(f"{section}.{name} is {value!r}; it must be {' or '.join(choices)}")
