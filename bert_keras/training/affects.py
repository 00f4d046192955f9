"""The metadata of a setting's field: what its value affects.

The key of a training has the settings with `WEIGHTS` (`weights_of`), so a run with another value of the others goes on
from its checkpoint (docs/decisions/0044-a-training-is-named-by-what-makes-its-weights.md).
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

_Value = TypeVar("_Value")

# The weights: another value is another training.
WEIGHTS = {"affects": "weights"}
# How the training runs, what it logs and keeps; the weights only by the rounding and the dropout of other devices.
RUN = {"affects": "run"}
# What is made of the trained model.
EXPORT = {"affects": "export"}
# An input, or how it is read: what is read is hashed.
INPUT = {"affects": "input"}


def weights(default: _Value) -> _Value:
    """A field of settings with `WEIGHTS`."""
    return _field(default, WEIGHTS)


def run(default: _Value) -> _Value:
    """A field of settings with `RUN`."""
    return _field(default, RUN)


def export(default: _Value) -> _Value:
    """A field of settings with `EXPORT`."""
    return _field(default, EXPORT)


def _field(default: Any, affects: dict[str, str]) -> Any:
    return dataclasses.field(default=default, metadata=affects)


def weights_of(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass that affect the weights; of a nested one all, if its fields declare nothing."""
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.metadata.get("affects", "weights") == "weights":
            chosen[field.name] = weights_of(value) if dataclasses.is_dataclass(value) else value
    return chosen
