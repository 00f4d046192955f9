"""A weight and its names in the formats of other programs, and a tensor of a file."""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from bert_keras.models.config import Part

# A file has all weights of a part or none; only the encoder is required.
Format = Literal["tf1", "huggingface", "keras_hub"]


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file, not yet read: its name, file, shape, and a function that reads it."""

    name: str
    file: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)}"

    def transposed(self) -> "StoredTensor":
        return dataclasses.replace(self, shape=self.shape[::-1], read=lambda: self.read().T)


class Stored(NamedTuple):
    """The name of a weight in a format, and whether it is transposed there."""

    name: str
    transposed: bool = False


class Weight(NamedTuple):
    """One weight: its path in the model and shape here, and its names in the formats, None if a format lacks it.

    `keras_hub` may split an axis into heads, which keeps the order of the numbers. `unused_rows` precede it in Hugging
    Face's file only.
    """

    part: Part
    path: str
    shape: tuple[int, ...]
    tf1: Stored | None
    huggingface: Stored | None
    keras_hub: Stored | None
    unused_rows: int = 0

    def stored(self, format_: Format) -> Stored | None:
        return {"tf1": self.tf1, "huggingface": self.huggingface, "keras_hub": self.keras_hub}[format_]

    def stored_shape(self, format_: Format) -> tuple[int, ...]:
        """The shape of `from_file`'s argument."""
        stored = self.stored(format_)
        rows, *others = self.shape[::-1] if stored and stored.transposed else self.shape
        return (rows + (self.unused_rows if format_ == "huggingface" else 0), *others)

    def to_file(self, format_: Format, value: np.ndarray) -> np.ndarray:
        """Convert to the format's layout; unused rows are 0."""
        stored = self.stored(format_)
        value = value.T if stored and stored.transposed else value
        if format_ == "huggingface" and self.unused_rows:
            value = np.pad(value, ((self.unused_rows, 0), (0, 0)))
        return np.ascontiguousarray(value)

    def from_file(self, format_: Format, value: np.ndarray) -> np.ndarray:
        """Inverse of `to_file`."""
        stored = self.stored(format_)
        value = value[self.unused_rows :] if format_ == "huggingface" else value
        return value.T if stored and stored.transposed else value
