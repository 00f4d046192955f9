"""The metadata of a setting's field: what its value affects.

The key of a training has the settings with `WEIGHTS` (`weights_of`), so a run with another value of the others goes on
from its checkpoint (docs/decisions/0044-a-training-is-named-by-what-makes-its-weights.md).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

# The weights: another value is another training.
WEIGHTS = {"affects": "weights"}
# How the training runs, what it logs and keeps; the weights only by the rounding and the dropout of other devices.
RUN = {"affects": "run"}
# What is made of the trained model.
EXPORT = {"affects": "export"}
# An input, or how it is read: what is read is hashed.
INPUT = {"affects": "input"}


def _field_that(affects: dict[str, str]) -> Callable[[Any], Any]:
    return lambda default: dataclasses.field(default=default, metadata=affects)


# A field of settings, with its default.
weights, run, export = map(_field_that, (WEIGHTS, RUN, EXPORT))


def weights_of(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass that affect the weights; of a nested one all, if its fields declare nothing."""
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.metadata.get("affects", "weights") == "weights":
            chosen[field.name] = weights_of(value) if dataclasses.is_dataclass(value) else value
    return chosen
