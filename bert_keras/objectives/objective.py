"""The interface of objectives to the training loop: sums per example, a loss and metrics from sums."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from keras import ops

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


class Mean(NamedTuple):
    """A term of a loss, in nats: `share` times the sum KEY_nll over the weight KEY_weight.

    A batch without predictions stays finite: `at_least` is the smallest weight, to which `added` is added; that of the
    metrics is `least_weight`.
    """

    key: str
    added: float = 0.0
    at_least: float = 0.0
    least_weight: float = 1e-5
    share: float = 1.0


def objective_of_means(
    name: str,
    means: Sequence[Mean],
    example_sums: Callable[[Any, Batch], dict[str, Any]],
    totals: Callable[[Batch], tuple[Any, ...]],
) -> Objective:
    """An objective whose loss is the sum of `means`, in the order of `totals`.

    Its sums are KEY_nll, KEY_correct and KEY_weight of each, its metrics the loss, KEY_loss and KEY_accuracy.
    """

    def loss(sums, totals):
        terms = [
            mean.share * sums[f"{mean.key}_nll"] / (ops.maximum(total, mean.at_least) + mean.added)
            for mean, total in zip(means, totals, strict=True)
        ]
        return sum(terms[1:], terms[0])

    def metrics(sums: Mapping[str, float]) -> dict[str, float]:
        found: dict[str, float] = {}
        for mean in means:
            found |= means_of(mean.key, sums, mean.least_weight)
        return {"loss": sum(mean.share * found[f"{mean.key}_loss"] for mean in means), **found}

    keys = tuple(f"{mean.key}_{end}" for mean in means for end in ("nll", "correct", "weight"))
    return Objective(name, keys, example_sums, totals, loss, metrics)


def means_of(key: str, sums: Mapping[str, float], least_weight: float = 1e-5) -> dict[str, float]:
    """KEY_loss and KEY_accuracy from summed KEY_nll, KEY_correct and KEY_weight."""
    weight = max(sums[f"{key}_weight"], least_weight)
    return {f"{key}_loss": sums[f"{key}_nll"] / weight, f"{key}_accuracy": sums[f"{key}_correct"] / weight}
