"""Trainings from several seeds: how much their scores differ, the best one, or the best ones as an ensemble.

Fine-tuning on small sets is unstable, and the paper takes the best of several on the held-out rows (section 4.1). The
score of a model that was chosen on the rows that it is scored on is optimistic; mean and deviation are not.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.ensemble import Ensemble
from bert_keras.strategy import worker_number
from bert_keras.tasks.experiment import Experiment
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings
from bert_keras.tasks.training import TrainedTask


@dataclasses.dataclass(frozen=True, eq=False)
class Restart:
    """One of the trainings: the seed, the model, its official scores on the held-out rows."""

    seed: int
    trained: TrainedTask
    scores: dict[str, float]


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """What goes on to be exported.

    Attributes:
        trained: the best model, or the ensemble.
        config: of the best model.
        report: of more than one training: `metric`, that they are judged by; `scores`, all of them, by seed; `mean` and
            `deviation` (of the sample, None of one) of the metric; `chosen`, the seeds, best first; `ensemble`, the
            scores of those together, None if it is one model.
    """

    trained: TrainedTask
    config: FineTuningConfig
    report: dict[str, Any]


def train_restarts(
    experiment: Experiment,
    config: FineTuningConfig,
    settings: RestartSettings,
    strategy: tf.distribute.Strategy,
) -> Chosen | None:
    """Trains all seeds and chooses; None of the workers but the first, which trained with it.

    A killed run goes on at the seed where it was: finished ones come from their checkpoints.
    """
    metric = experiment.task.metrics[0]
    scores: dict[int, dict[str, float]] = {}
    best: list[Restart] = []
    for seed in range(config.seed, config.seed + settings.count):
        trained = experiment.train(dataclasses.replace(config, seed=seed), strategy)
        if worker_number(strategy):
            continue
        scores[seed] = experiment.scores(trained, config.eval_batch_size)
        best = sorted([*best, Restart(seed, trained, scores[seed])], key=lambda one: -_or_worst(one.scores[metric]))
        # The others are let go of: models are large.
        del best[settings.ensemble :]
    if not best:
        return None
    chosen, together = best[0].trained, None
    if settings.ensemble > 1:
        chosen = dataclasses.replace(chosen, model=Ensemble([one.trained.model for one in best]))
        together = experiment.scores(chosen, config.eval_batch_size)
    report = {
        "metric": metric,
        "scores": scores,
        **mean_and_deviation([of_seed[metric] for of_seed in scores.values()]),
        "chosen": [one.seed for one in best],
        "ensemble": together,
    }
    return Chosen(chosen, dataclasses.replace(config, seed=best[0].seed), report)


def mean_and_deviation(values: list[float]) -> dict[str, float | None]:
    """`mean`, and `deviation` of the sample (n - 1), None of fewer than two.

    >>> mean_and_deviation([1.0, 2.0, 6.0])  # sqrt((4 + 1 + 9) / 2)
    {'mean': 3.0, 'deviation': 2.6457513110645907}
    """
    return {"mean": float(np.mean(values)), "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None}


def _or_worst(value: float) -> float:
    """A correlation of answers that are all alike is nan (`bert_keras.tasks.scores`), worse than any."""
    return -math.inf if math.isnan(value) else value
