"""What a model learns, as the training loop sees it: sums an example, a loss of sums, metrics of sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Batch = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Objective:
    """An objective. All sums are additive, so that a global batch may be cut into any parts.

    Attributes:
        name: as recipes and example specs call it.
        sums: the names of what `example_sums` returns.
        example_sums: (model outputs, batch) -> dict of float32 [B], for each name of `sums`.
        totals: batch -> tuple of float32 scalars: the weights that the loss divides by, of the batch alone, without the
            model. The training loop sums them over the global batch before any gradient is taken.
        loss: (dict of the sums of some examples, totals of the whole global batch) -> their part of the loss, a scalar:
            the parts of a batch add up to the batch's loss.
        metrics: dict of sums over any number of examples, floats -> what logs and progress bars show, `loss` first.
    """

    name: str
    sums: tuple[str, ...]
    example_sums: Callable[[Any, Batch], dict[str, Any]]
    totals: Callable[[Batch], tuple[Any, ...]]
    loss: Callable[[dict[str, Any], tuple[Any, ...]], Any]
    metrics: Callable[[Mapping[str, float]], dict[str, float]]
