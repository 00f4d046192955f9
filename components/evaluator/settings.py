"""By what held-out examples are told apart when a model is judged."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence

# By these features TFMA slices; the first is JSON, the second one is made (`components.evaluator.slices`).
LABEL_FEATURE, LENGTH_FEATURE, SOURCE_FEATURE = "gold", "length", "source"
SLICED_BY = {LABEL_FEATURE: "label", LENGTH_FEATURE: "length", SOURCE_FEATURE: "source"}


@dataclasses.dataclass(frozen=True)
class SliceSettings:
    """In which parts the held-out examples are scored, beside all of them together.

    Attributes:
        lengths: the longest of each part, in pieces: 32,64 are parts of up to 32, of 33 to 64 and of over 64; nothing:
            not by length. Of a pre-trained model all real tokens of an example count.
    """

    lengths: tuple[int, ...] = (32, 64, 128, 256)

    def __post_init__(self) -> None:
        if list(self.lengths) != sorted({length for length in self.lengths if length > 0}):
            said = ",".join(map(str, self.lengths))
            raise ValueError(f"slices.lengths is {said}; each must be above the one before, the first above 0")

    @property
    def length_groups(self) -> list[str]:
        """The names of the parts: SliceSettings((32, 64)) has "up to 32", "33 to 64", "over 64"."""
        if not self.lengths:
            return []
        between = [f"{low + 1} to {high}" for low, high in zip(self.lengths, self.lengths[1:], strict=False)]
        return [f"up to {self.lengths[0]}", *between, f"over {self.lengths[-1]}"]


@dataclasses.dataclass(frozen=True)
class TaskSliceSettings(SliceSettings):
    """The same of the rows of a task.

    Attributes:
        lengths: as above; what a row's texts have together before any is cut, without [CLS] and [SEP]; of several
            choices the longest counts.
        by_label: of classification: by label.
        by_source: by where a row comes from, if its file tells (`components.task_example_gen.readers`).
    """

    by_label: bool = True
    by_source: bool = True


def length_group(groups: Sequence[str], length: int) -> str:
    """In which of `SliceSettings.length_groups` a length is.

    >>> length_group(["up to 32", "33 to 64", "over 64"], 33)
    '33 to 64'
    """
    longest = [int(name.rpartition(" ")[2]) for name in groups[:-1]]
    return groups[bisect.bisect_left(longest, length)]
