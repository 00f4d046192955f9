"""Restarts: trainings with several seeds, the deviation of their scores, and the best model or an ensemble.

Fine-tuning on small sets is unstable; the paper selects the best of several models on the held-out rows (section 4.1).
The selected model's score on the same rows is optimistic; mean and deviation are not.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from bert_keras.errors import Diverged
from bert_keras.finetuning.fine_tuner import FineTuner
from bert_keras.finetuning.training import TrainedTask
from bert_keras.models.ensemble import Ensemble
from bert_keras.notices import notify
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings
from bert_keras.training.backends.devices import Devices


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """The model to export, and a report.

    The report has `metric`, that of the selection; `scores`, all scores by seed, NaN if it diverged; `mean` and
    `deviation` (of the sample, None for one training) of the metric over the seeds with a score; `chosen`, the seeds,
    best first; `ensemble`, the scores of the ensemble, None for a single model.
    """

    trained: TrainedTask  # the best model, or the ensemble
    config: FineTuningConfig  # of the best model
    report: dict[str, Any]


def train_restarts(
    tuner: FineTuner, config: FineTuningConfig, settings: RestartSettings, devices: Devices
) -> Chosen | None:
    """Train all seeds and select; return None on all workers but the first.

    A killed run resumes at its seed; finished trainings come from their checkpoints. A seed that diverges is reported
    and left out; Diverged if all do.
    """
    metric = tuner.task.metrics[0]
    scores: dict[int, dict[str, float]] = {}
    models: dict[int, TrainedTask] = {}  # by seed, the best first
    diverged = 0
    for seed in range(config.seed, config.seed + settings.count):
        try:
            trained = tuner.train(dataclasses.replace(config, seed=seed), devices)
        except Diverged as error:
            diverged += 1
            if diverged == settings.count:
                raise
            if devices.worker == 0:
                notify(f"seed {seed} is left out: {error}")
            scores[seed] = dict.fromkeys(tuner.task.metrics, math.nan)
            continue
        if devices.worker:
            continue
        scores[seed] = tuner.scores(trained, config.eval_batch_size)
        models[seed] = trained
        # nan, the correlation of constant answers (`bert_keras.tasks.metrics.scores`), ranks below all scores.
        ranked = sorted(models, key=lambda seed: np.nan_to_num(-scores[seed][metric], nan=np.inf))
        # Free the other models, which are large.
        models = {seed: models[seed] for seed in ranked[: settings.ensemble]}
    if not models:
        return None
    seeds, chosen, together = [*models], next(iter(models.values())), None
    if settings.ensemble > 1:
        chosen = dataclasses.replace(chosen, model=Ensemble([trained.model for trained in models.values()]))
        together = tuner.scores(chosen, config.eval_batch_size)
    report = {
        "metric": metric,
        "scores": scores,
        **mean_and_deviation([of_seed[metric] for of_seed in scores.values() if not math.isnan(of_seed[metric])]),
        "chosen": seeds,
        "ensemble": together,
    }
    return Chosen(chosen, dataclasses.replace(config, seed=seeds[0]), report)


def mean_and_deviation(values: list[float]) -> dict[str, float | None]:
    """`mean`, and `deviation` of the sample (n - 1); None without values, and for fewer than two.

    >>> mean_and_deviation([1.0, 2.0, 6.0])  # sqrt((4 + 1 + 9) / 2)
    {'mean': 3.0, 'deviation': 2.6457513110645907}
    """
    return {
        "mean": float(np.mean(values)) if values else None,
        "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
    }
