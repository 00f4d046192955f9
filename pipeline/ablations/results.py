"""What each unit of work left behind: a JSON file, named by a hash of all that its figures depend on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from bert_keras.errors import InputError
from pipeline.ablations.scales import AblationRecipe

PRETRAINED, FINETUNED = "pretrained", "finetuned"
# The sections of an `AblationRecipe` that a unit of a kind depends on.
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
        settings: all that its result depends on, as JSON can say it: a change of any is another unit.
    """

    kind: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, kind: str, recipe: AblationRecipe, **inputs: Any) -> Unit:
        """The unit of a recipe; `inputs` is what it depends on beside the recipe's sections."""
        sections = {name: dataclasses.asdict(getattr(recipe, name)) for name in _SECTIONS[kind]}
        return cls(kind, {**sections, "inputs": inputs})

    @property
    def hash(self) -> str:
        """16 hexadecimal digits, the same wherever it is computed."""
        return hashlib.sha256(json.dumps([self.kind, self.settings], sort_keys=True).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a unit gave.

    Attributes:
        figures: by name: the official scores of the held-out rows; of a pre-training the held-out metrics.
        seconds: it took, by the clock; of one that was killed and went on, the last part.
    """

    figures: Mapping[str, float]
    seconds: float


class Results:
    """The units under a folder: KIND/HASH is a unit's own folder, KIND/HASH.json its result, written last."""

    def __init__(self, output: str):
        self.output = output

    def folder(self, unit: Unit) -> str:
        """Where the unit may leave what is needed again."""
        return os.path.join(self.output, unit.kind, unit.hash)

    def load(self, unit: Unit) -> Result | None:
        """The result; None: it is not there.

        Raises:
            InputError: the file is none that `save` wrote.
        """
        path = self.folder(unit) + ".json"
        if not os.path.exists(path):
            return None
        try:
            with open(path, encoding="utf-8") as file:
                stored = json.load(file)
            return Result(stored["figures"], stored["seconds"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is damaged ({error}); remove it, and it is done again") from error

    def save(self, unit: Unit, result: Result) -> None:
        """Writes the result, with the settings it is of: whole, or not at all."""
        path = self.folder(unit) + ".json"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump({**dataclasses.asdict(result), "settings": unit.settings}, file, indent=1, sort_keys=True)
        os.replace(path + ".part", path)
