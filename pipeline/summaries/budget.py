"""The budget of a pre-training: the steps that were fixed, what is used, and what twice as much would bring."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.objectives.table import perplexity_text
from bert_keras.training.config import BUDGET_FILE, with_steps
from components.io.shards import read_json
from pipeline.recipes.settings import Recipe

LEAST_EVALUATIONS = 5
_EXPONENTS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0)
_DRAWS = 2000


def with_budget(recipe: Recipe, model_run: str, loss: str) -> tuple[Recipe, dict[str, Any]]:
    """The recipe with the steps of a run and `{"budget": ...}`; with no budget both are as before, `{}`.

    `loss` is the field of the held-out loss in the Trainer's `log.jsonl`.
    """
    if recipe.training.budget is None:
        return recipe, {}
    from bert_keras.training.log import LOG_FILE  # TensorFlow, which `bert-tfx report` does without

    account = read_json(os.path.join(model_run, BUDGET_FILE))
    training, second = with_steps(recipe.training, recipe.second_phase, account["num_train_steps"])
    with open(os.path.join(model_run, LOG_FILE), encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if line["kind"] == "eval"]
    # The second phase's evaluations are of other examples.
    curve = {} if second.num_train_steps else {line["step"]: line[loss] for line in lines}
    twice = forecast(list(curve), list(curve.values()))
    recipe = dataclasses.replace(recipe, training=training, second_phase=second)
    return recipe, {"budget": {**account, "last_loss": list(curve.values())[-1:], "twice": twice}}


def forecast(steps: Sequence[int], losses: Sequence[float]) -> list[float] | None:
    """The loss after twice as many steps, and its 95 % interval; None with fewer than five evaluations to go by.

    The evaluations of the last half are fitted by a + b steps^-c, or a - b log(steps) where c is 0. The interval
    redraws the residuals, which it takes as independent. A run's rate decays to its own end: what that adds to the
    fall of the last half is extrapolated, so the gain is likely too large.
    """
    x, y = np.array(steps, float) / max([1, *steps]), np.array(losses, float)
    x, y = x[x >= 0.5], y[x >= 0.5]
    if len(y) < LEAST_EVALUATIONS:
        return None

    def basis(at: np.ndarray) -> list[np.ndarray]:
        """[2, points] for each exponent."""
        return [np.stack([np.ones_like(at), (at**-c - 1) / c if c else -np.log(at)]) for c in _EXPONENTS]

    inverses = [np.linalg.pinv(of_c.T) for of_c in basis(x)]

    def fitted(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[curves, points] -> the best fit at the points, and at 2."""
        coefficients = [curves @ inverse.T for inverse in inverses]
        fits = np.stack([b @ of_c for b, of_c in zip(coefficients, basis(x), strict=True)])
        ahead = np.stack([(b @ of_c)[:, 0] for b, of_c in zip(coefficients, basis(np.array([2.0])), strict=True)])
        best, row = ((fits - curves) ** 2).sum(axis=2).argmin(axis=0), np.arange(len(curves))
        return fits[best, row], ahead[best, row]

    (fit,), (expected,) = fitted(y[None])
    residuals = (y - fit) * np.sqrt(len(y) / (len(y) - 3))
    drawn = np.random.default_rng(0).choice(residuals, (_DRAWS, len(y)))
    low, high = np.quantile(fitted(fit + drawn)[1], [0.025, 0.975])
    return [float(expected), float(low), float(high)]


def budget_line(budget: Mapping[str, Any]) -> str:
    """The budget on the screen and on the page."""
    text = (
        f"{budget['budget']}: {budget['num_train_steps']:,} steps, {budget['used']:.4g} of {budget['limit']:.4g} "
        f"{budget['unit']} used ({budget['used'] / budget['limit']:.1%})"
    )
    if budget["twice"] is None:
        return text
    last, *twice = (perplexity_text(float(np.exp(loss))) for loss in (*budget["last_loss"], *budget["twice"]))
    return (
        f"{text}; twice as much: held-out perplexity from {last} to {twice[0]} (95% CI {twice[1]} to {twice[2]}), "
        "likely more: the estimate extrapolates the last half of the curve, whose fall is in part the decay of the rate"
    )
