"""Search over a grid of trainings: the best has the highest first score of the task on the held-out rows."""

import dataclasses
import itertools
import math
from typing import Any

from bert_keras.errors import StageError
from bert_keras.finetuning.fine_tuner import FineTuner
from bert_keras.tasks.settings import FineTuningConfig, SearchSettings


def search(
    tuner: FineTuner, config: FineTuningConfig, settings: SearchSettings
) -> tuple[FineTuningConfig, dict[str, Any]]:
    """The best settings of a grid, the others as in `config`, and the report; StageError without any score.

    A killed search resumes: each training has a folder with the scores of a finished training or the checkpoints of a
    killed one. Only the model of the best training stays there. The report is a dict: `metric`, the score that ranks
    the trainings; `trainings`, a dict each of its values and `score`, None without a score (it diverged, or all its
    answers are equal and the score is a correlation); `best`, one of them, the first of equal scores.
    """
    metric = tuner.task.metrics[0]
    points = [dict(zip(settings.grid, values, strict=True)) for values in itertools.product(*settings.grid.values())]
    trainings: list[dict[str, Any]] = []
    best: dict[str, Any] | None = None
    best_config = config
    for number, point in enumerate(points, start=1):
        candidate = dataclasses.replace(config, **point)
        score = tuner.held_out_scores(candidate)[metric]
        values = ", ".join(f"{name} {value:g}" for name, value in point.items())
        print(f"search {number}/{len(points)}: {values}: {metric} {score:.4g}", flush=True)
        trainings.append({**point, "score": None if math.isnan(score) else score})
        if math.isnan(score) or (best and score <= best["score"]):
            tuner.forget_model(candidate)
            continue
        if best:
            tuner.forget_model(best_config)
        best, best_config = trainings[-1], candidate
    if best is None:
        raise StageError(
            f"none of the {len(points)} trainings of the search ended with a score: lower search.learning_rate"
        )
    return best_config, {"metric": metric, "trainings": trainings, "best": best}
