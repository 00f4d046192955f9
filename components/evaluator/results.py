"""What the Evaluator measured, read from what it wrote."""

from __future__ import annotations

import tensorflow_model_analysis as tfma

# The names of the models that are compared.
CANDIDATE, BASELINE = "candidate", "baseline"


def evaluated(evaluation: str) -> dict[str, float]:
    """What the Evaluator measured of the candidate, by the names of its metrics.

    Args:
        evaluation: the folder of its `evaluation` artifact.
    """
    # Models have names only where there are two.
    results = (tfma.load_eval_result(evaluation, model_name=name) for name in (CANDIDATE, None))
    ((_, outputs),) = next(result.slicing_metrics for result in results if result.slicing_metrics)
    metrics = outputs[""][""]
    return {name: value["doubleValue"] for name, value in metrics.items()}
