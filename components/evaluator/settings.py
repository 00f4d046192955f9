"""Slices for evaluation."""

import bisect
import dataclasses
from collections.abc import Sequence

from bert_keras.data.example_format import SOURCE

# Features that TFMA slices by; the first is JSON, the second is computed (`components.evaluator.slices`).
LABEL_FEATURE, LENGTH_FEATURE, SOURCE_FEATURE = "gold", "length", SOURCE
SLICED_BY = {LABEL_FEATURE: "label", LENGTH_FEATURE: "length", SOURCE_FEATURE: "source"}


@dataclasses.dataclass(frozen=True)
class SliceSettings:
    """Slices in which held-out examples are scored, besides all of them together.

    Attributes:
        lengths: upper bounds of slices by number of tokens: 32,64 gives slices of up to 32, of 33 to 64 and of over
            64; empty: no slices by length. For pre-trained models all real tokens of an example count; for a task
            those of a row's texts before truncation, without [CLS] and [SEP], with several choices of the longest.
        by_source: by the source of the text, if it has a name (`--corpus NAME=GLOB`), as each language of several; by
            the origin of a task's row, if its file gives one (`components.task_example_gen.readers`).
    """

    lengths: tuple[int, ...] = (32, 64, 128, 256)
    by_source: bool = True

    def __post_init__(self) -> None:
        if list(self.lengths) != sorted({length for length in self.lengths if length > 0}):
            lengths = ",".join(map(str, self.lengths))
            raise ValueError(f"slices.lengths is {lengths}; each must be above the one before, the first above 0")

    @property
    def length_groups(self) -> list[str]:
        """Names of the slices: SliceSettings((32, 64)) has "up to 32", "33 to 64", "over 64"."""
        if not self.lengths:
            return []
        between = [f"{low + 1} to {high}" for low, high in zip(self.lengths, self.lengths[1:], strict=False)]
        return [f"up to {self.lengths[0]}", *between, f"over {self.lengths[-1]}"]


def length_group(groups: Sequence[str], length: int) -> str:
    """Slice of `SliceSettings.length_groups` that a length belongs to."""
    longest = [int(name.rpartition(" ")[2]) for name in groups[:-1]]
    return groups[bisect.bisect_left(longest, length)]
