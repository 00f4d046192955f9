"""Errors that a user sees as one line; any other exception is a defect or a failure of the machine."""

import dataclasses
import typing
from collections.abc import Callable
from typing import Annotated, Any, ClassVar


class InputError(ValueError):
    """Unusable input; the message names it, what was expected, and what to do. Exit code 2."""


class StageError(RuntimeError):
    """A stage cannot continue; the message names the reason and what to do. Exit code 1."""


class Diverged(StageError):
    """The loss or gradient of a training is not finite; a retry would end the same way."""


class Preempted(RuntimeError):
    """SIGTERM or Ctrl-C interrupted a training; its checkpoint is written. Exit code 4."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A condition on the value of a setting, as a test and in words; it stands in the `Annotated` type of its field."""

    holds: Callable[[Any], bool]
    words: str


def at_least(least: float) -> Rule:
    """The rule "at least 1", for 1."""
    return Rule(lambda value: value >= least, f"at least {least}")


POSITIVE = Rule(lambda value: value > 0, "above 0")
SHARE = Rule(lambda value: 0 <= value <= 1, "in [0, 1]")
# Types of settings.
Count = Annotated[int, at_least(1)]
Size = Annotated[int, at_least(0)]
Positive = Annotated[float, POSITIVE]
Share = Annotated[float, SHARE]
PositiveShare = Annotated[float, Rule(lambda value: 0 < value <= 1, "in (0, 1]")]
ProperShare = Annotated[float, Rule(lambda value: 0 < value < 1, "between 0 and 1")]
Rate = Annotated[float, Rule(lambda value: 0 <= value < 1, "in [0, 1)")]


class Settings:
    """The base of settings: `class MaskingSettings(Settings, section="examples.masking")`, also a dataclass.

    ValueError for the first field that breaks a `Rule` of its type, or that its `Literal` type does not list. None
    breaks no rule.
    """

    _section: ClassVar[str]

    def __init_subclass__(cls, section: str = ""):
        if section:
            cls._section = section

    def __post_init__(self) -> None:
        for name, kind in typing.get_type_hints(type(self), include_extras=True).items():
            value, rules = getattr(self, name), getattr(kind, "__metadata__", ())
            if typing.get_origin(kind) is typing.Literal:
                *others, last = typing.get_args(kind)
                rules = (Rule(typing.get_args(kind).__contains__, f"{', '.join(others)} or {last}"),)
            for rule in rules:
                if value is not None and not rule.holds(value):
                    raise ValueError(f"{self._section}.{name} is {value!r}; it must be {rule.words}")
