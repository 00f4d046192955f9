"""The budget of a pre-training: the steps that were fixed, and what is used."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert_keras.training.config import BUDGET_FILE, with_steps
from components.io.shards import read_json
from pipeline.recipes.settings import Recipe


def with_budget(recipe: Recipe, model_run: str) -> tuple[Recipe, dict[str, Any]]:
    """The recipe with the steps of a run and `{"budget": ...}`; with no budget both are as before, `{}`."""
    if recipe.training.budget is None:
        return recipe, {}
    account = read_json(os.path.join(model_run, BUDGET_FILE))
    training, second = with_steps(recipe.training, recipe.second_phase, account["num_train_steps"])
    return dataclasses.replace(recipe, training=training, second_phase=second), {"budget": account}


def budget_line(budget: Mapping[str, Any]) -> str:
    """The budget on the screen and on the page."""
    return (
        f"{budget['budget']}: {budget['num_train_steps']:,} steps, {budget['used']:.4g} of {budget['limit']:.4g} "
        f"{budget['unit']} used ({budget['used'] / budget['limit']:.1%})"
    )
