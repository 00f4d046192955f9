"""Results of units: a JSON file each, named by a hash of all that its figures depend on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from benchmarks.ablations.recipes import AblationRecipe
from bert_keras.errors import InputError
from bert_keras.files import atomic_write_anywhere

PRETRAINED, FINETUNED = "pretrained", "finetuned"
# The sections of an `AblationRecipe` that a kind of unit depends on.
_SECTIONS = {
    "examples": ("corpus", "vocabulary", "examples"),
    "rows": ("data",),
    PRETRAINED: ("model", "corpus", "vocabulary", "examples", "training", "pretraining"),
    FINETUNED: ("data", "task", "finetuning"),
}


@dataclasses.dataclass(frozen=True)
class Unit:
    """A unit of work.

    Attributes:
        kind: `examples`, `rows`, PRETRAINED or FINETUNED.
        settings: all that its result depends on, as JSON; any change makes another unit.
    """

    kind: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, kind: str, recipe: AblationRecipe, **inputs: Any) -> Unit:
        """The unit of a recipe; `inputs` are its dependencies beside the recipe's sections."""
        sections = {name: dataclasses.asdict(getattr(recipe, name)) for name in _SECTIONS[kind]}
        return cls(kind, {**sections, "inputs": inputs})

    @property
    def hash(self) -> str:
        """16 hexadecimal digits, equal on all machines."""
        return hashlib.sha256(json.dumps([self.kind, self.settings], sort_keys=True).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of a unit.

    Attributes:
        figures: by name: official scores of the held-out rows; for a pre-training its held-out metrics.
        seconds: wall-clock seconds; for a resumed unit those of the last part.
    """

    figures: Mapping[str, float]
    seconds: float


class Results:
    """Units below a folder: KIND/HASH is a unit's own folder, KIND/HASH.json its result, written last."""

    def __init__(self, output: str):
        self.output = output

    def folder(self, unit: Unit) -> str:
        """The unit's own folder, for files that other units need."""
        return os.path.join(self.output, unit.kind, unit.hash)

    def load(self, unit: Unit) -> Result | None:
        """Read the result; None if there is none.

        Raises:
            InputError: the file is damaged.
        """
        path = self.folder(unit) + ".json"
        if not os.path.exists(path):
            return None
        try:
            with open(path, encoding="utf-8") as file:
                stored = json.load(file)
            return Result(stored["figures"], stored["seconds"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is damaged ({error}); remove it to run the unit again") from error

    def save(self, unit: Unit, result: Result) -> None:
        """Write the result with its settings, atomically."""
        path = self.folder(unit) + ".json"
        fields = {**dataclasses.asdict(result), "settings": unit.settings}
        atomic_write_anywhere(path, json.dumps(fields, indent=1, sort_keys=True))
