"""The interface of objectives to the training loop: sums per example, a loss and metrics from sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Batch = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Objective:
    """An objective. All sums are additive, so a global batch may be split in any way, but for `whole_batch`.

    Attributes:
        name: name in recipes and example specs.
        sums: keys of `example_sums`.
        example_sums: (model outputs, batch) -> dict of float32 [B], for each name of `sums`; in evaluation without
            those of what is only trained (`bert_keras.objectives.gpt_bert`).
        totals: batch -> tuple of float32 scalars: the denominators of the loss, computed without the model. The
            training loop sums them over the global batch before any gradient is computed.
        loss: (dict of the sums of some examples, totals of the global batch) -> their part of the loss, a scalar;
            the parts of a batch add up to its loss.
        metrics: dict of sums over any number of examples, floats -> metrics for logs and progress bars, `loss` first.
        whole_batch: labels that `example_sums` needs of the whole global batch, with its outputs, on each device: the
            sums of an example depend on the other examples, as with negatives from the batch; (): they do not.
    """

    name: str
    sums: tuple[str, ...]
    example_sums: Callable[[Any, Batch], dict[str, Any]]
    totals: Callable[[Batch], tuple[Any, ...]]
    loss: Callable[[dict[str, Any], tuple[Any, ...]], Any]
    metrics: Callable[[Mapping[str, float]], dict[str, float]]
    whole_batch: tuple[str, ...] = ()
