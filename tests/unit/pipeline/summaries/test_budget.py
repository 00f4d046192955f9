"""The budget of a finished run: its steps in the recipe, what was used, what twice as much would bring."""

import json

import numpy as np
import pytest

from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import with_settings
from pipeline.summaries.budget import budget_line, forecast, with_budget

STEPS = np.arange(100, 1001, 100)


@pytest.mark.parametrize("exponent", [0.25, 0.5, 1.0])
def test_a_curve_without_noise_goes_on(exponent):
    expected, low, high = forecast(STEPS, 2 + 3 * (STEPS / 1000) ** -exponent)
    assert (expected, low, high) == pytest.approx([2 + 3 * 2**-exponent] * 3, abs=1e-9)
    expected, *_ = forecast(STEPS, 5 - np.log2(STEPS))
    assert expected == pytest.approx(5 - np.log2(2000))


def test_the_interval_holds_what_comes_as_often_as_it_says():
    """Of curves that end by a power between those that are tried, with noise; 10 evaluations in the last half."""
    steps, rng, held = np.arange(50, 1001, 50), np.random.default_rng(1), []
    for _ in range(200):
        _, low, high = forecast(steps, 2 + 3 * (steps / 1000) ** -0.3 + rng.normal(0, 0.02, len(steps)))
        held.append(low <= 2 + 3 * 2**-0.3 <= high)
    assert 0.88 < np.mean(held) < 1


def test_the_first_half_does_not_count_and_few_evaluations_say_nothing():
    losses = 2 + 3 / STEPS
    assert forecast(STEPS, np.where(STEPS < 500, 100.0, losses)) == forecast(STEPS, losses)
    assert forecast(STEPS[1:], losses[1:]) is not None
    assert forecast([200, 400, 600, 800, 1000], [5.0, 4, 3, 2, 1]) is forecast([], []) is None


def finished(folder, steps, evaluations=10):
    account = {"budget": "2h", "limit": 7200.0, "unit": "s", "num_train_steps": steps, "costs": {}, "used": 7128.0}
    (folder / "budget.json").write_text(json.dumps(account))
    every = steps // evaluations
    lines = [{"kind": "train", "step": 5, "loss": 9.0}]
    lines += [{"kind": "eval", "step": k * every, "mlm_loss": 3 + evaluations / k} for k in range(1, evaluations + 1)]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_summary_has_the_steps_of_the_run(tmp_path):
    finished(tmp_path, 1000)
    assert with_budget(tiny_cpu(), str(tmp_path), "mlm_loss") == (tiny_cpu(), {})
    recipe, found = with_budget(with_settings(tiny_cpu(), ["training.budget=2h"]), str(tmp_path), "mlm_loss")
    assert (recipe.training.num_train_steps, recipe.training.num_warmup_steps) == (1000, 33)
    assert budget_line(found["budget"]) == (
        "2h: 1,000 steps, 7128 of 7200 s used (99.0%); twice as much: held-out perplexity from 54.6 to 33.1 (95% CI "
        "33.1 to 33.1), likely more: the estimate extrapolates the last half of the curve, whose fall is in part the "
        "decay of the rate"
    )
    finished(tmp_path, 1000, evaluations=5)
    _, found = with_budget(with_settings(tiny_cpu(), ["training.budget=2h"]), str(tmp_path), "mlm_loss")
    assert budget_line(found["budget"]) == "2h: 1,000 steps, 7128 of 7200 s used (99.0%)"


def test_evaluations_of_two_phases_are_not_one_curve(tmp_path):
    finished(tmp_path, 1000)
    recipe, found = with_budget(
        with_settings(RECIPES["bert_tiny"](), ["training.budget=2h"]), str(tmp_path), "mlm_loss"
    )
    assert recipe.second_phase.num_train_steps == 100 and found["budget"]["twice"] is None
