"""Metrics of the gate compared with calculations by hand."""

import math

import numpy as np
import pytest
import tensorflow_model_analysis as tfma

from components.evaluator.metrics import MlmAccuracy, MlmPerplexity, NspAccuracy
from components.evaluator.results import CHANCE, HIGH, LOW, OVER_CHANCE

# Two batches, with two examples and with one: 8 predictions, 5 right, 8 ln 2 + 8 ln 5 nats; 3 pairs, 2 right.
BATCHES = [
    {
        "mlm_nll": [3 * math.log(2), 5 * math.log(2)],
        "mlm_correct": [2.0, 1.0],
        "mlm_weight": [3.0, 4.0],
        "nsp_correct": [1.0, 0.0],
        "nsp_weight": [1.0, 1.0],
    },
    {
        "mlm_nll": [8 * math.log(5)],
        "mlm_correct": [2.0],
        "mlm_weight": [1.0],
        "nsp_correct": [1.0],
        "nsp_weight": [1.0],
    },
]


def compute(metric, batches, model_name=""):
    """The metric without the bounds of its interval."""
    return compute_all(metric, batches, model_name)[0]


def compute_all(metric, batches, model_name="", chance=False):
    """The metric with the bounds of its interval, from one accumulator per batch, merged as in Beam.

    With `chance` also the metric of the guesses, and the number of standard errors above it.
    """
    (computation,) = metric.computations(model_names=[model_name])
    combiner = computation.combiner
    accumulators = []
    for batch in batches:
        outputs = {name: np.array(values, np.float32) for name, values in batch.items()}
        predictions = {model_name: outputs} if model_name else outputs
        inputs = tfma.metrics.StandardMetricInputs({tfma.PREDICTIONS_KEY: predictions})
        accumulators.append(combiner.add_input(combiner.create_accumulator(), inputs))
    found = combiner.extract_output(combiner.merge_accumulators(accumulators))
    assert [key.name for key in found] == [metric.name + end for end in ("", LOW, HIGH, CHANCE, OVER_CHANCE)]
    assert {key.model_name for key in found} == {model_name}
    return list(found.values())[: None if chance else 3]


@pytest.mark.parametrize("model_name", ["", "candidate"])
@pytest.mark.parametrize(
    ("metric", "name", "expected"),
    [
        (MlmAccuracy, "mlm_accuracy", 5 / 8),
        # exp((8 ln 2 + 8 ln 5) / 8) = 2 * 5: over all predictions, not the mean of the batches' perplexities.
        (MlmPerplexity, "mlm_perplexity", 10.0),
        (NspAccuracy, "nsp_accuracy", 2 / 3),
    ],
)
def test_metrics_equal_calculations_by_hand(metric, name, expected, model_name):
    assert metric().name == name
    assert compute(metric(), BATCHES, model_name) == pytest.approx(expected, rel=1e-6)


def test_the_interval_equals_a_calculation_by_hand():
    # One pair per example, so the error of 2 of 3 is the textbook's: sqrt(2/3 * 1/3 / (3 - 1)) = 1/3.
    assert compute_all(NspAccuracy(), BATCHES)[1:] == pytest.approx([2 / 3 - 1.96 / 3, 1.0])
    # 2, 1 and 2 of 3, 4 and 1 tokens are right, 5/8 of all. The residuals are 1/8, -12/8 and 11/8:
    # error sqrt(3/2 * 266/64 / 8^2) = 0.312109, times 1.96 is 0.611734, and a share is at most 1.
    assert compute_all(MlmAccuracy(), BATCHES)[1:] == pytest.approx([0.625 - 0.611734, 1.0], abs=1e-6)
    # For the perplexity it follows from the loss: no loss varies here, and for one example nothing is known.
    even = {"mlm_nll": [math.log(2), 3 * math.log(2)], "mlm_weight": [1.0, 3.0]}
    assert compute_all(MlmPerplexity(), [even]) == pytest.approx([2.0, 2.0, 2.0], rel=1e-6)
    one = {name: values[:1] for name, values in even.items()}
    assert [math.isnan(value) for value in compute_all(MlmPerplexity(), [one])] == [False, True, True]


def test_the_interval_has_95_percent_coverage():
    """400 samples of 50 texts; each text has its own share of right tokens, 0.6 on average."""
    generator, hits = np.random.default_rng(0), 0
    for _ in range(400):
        weight = generator.integers(1, 20, 50).astype(float)
        correct = generator.binomial(weight.astype(int), generator.uniform(0.3, 0.9, 50)).astype(float)
        _, low, high = compute_all(MlmAccuracy(), [{"mlm_correct": correct, "mlm_weight": weight}])
        hits += low <= 0.6 <= high
    assert 0.91 < hits / 400 < 0.98


@pytest.mark.parametrize("metric", [MlmAccuracy, MlmPerplexity, NspAccuracy])
def test_metrics_without_weight_are_nan(metric):
    zeros = {name: [0.0] * len(values) for name, values in BATCHES[0].items()}
    assert math.isnan(compute(metric(), [zeros]))


def test_metrics_of_a_diverged_model():
    assert math.isnan(compute(MlmPerplexity(), [{**BATCHES[0], "mlm_nll": [math.nan, 1.0]}]))
    assert math.isfinite(compute(MlmPerplexity(), [{**BATCHES[0], "mlm_nll": [1e9, 1.0]}]))


@pytest.mark.parametrize("batches", [1, 3])
def test_sums_stay_exact(batches):
    # 2 ** 24 + 1 is not a float32; the second pair of three is right, the third is not.
    correct, weight = [2.0**24, 1.0, 0.0], [2.0**24, 1.0, 1.0]
    if batches == 1:
        rows = [{"nsp_correct": correct, "nsp_weight": weight}]
    else:
        rows = [{"nsp_correct": [c], "nsp_weight": [w]} for c, w in zip(correct, weight, strict=True)]
    assert compute(NspAccuracy(), rows) == (2**24 + 1) / (2**24 + 2)


def test_chance_equals_a_calculation_by_hand():
    """Always "next" is right for 2 of the three pairs of `BATCHES`, never for one: chance is 2/3, as is the model."""
    batches = [{**BATCHES[0], "nsp_correct_guessed": [[1.0, 0.0], [0.0, 1.0]]}]
    batches.append({**BATCHES[1], "nsp_correct_guessed": [[1.0, 0.0]]})
    assert compute_all(NspAccuracy(), batches, chance=True)[3:] == [pytest.approx(2 / 3), 0.0]
    # The model has 5 tokens of 8 right, the guess 1: 1/2 better, with 1, 1 and 2 more of 3, 4 and 1 tokens. The
    # residuals are -1/2, -1 and 3/2, error sqrt(3/2 * 7/2 / 8^2) = 0.286411.
    batches = [{**BATCHES[0], "mlm_correct_guessed": [[1.0], [0.0]]}, {**BATCHES[1], "mlm_correct_guessed": [[0.0]]}]
    assert compute_all(MlmAccuracy(), batches, chance=True)[3:] == pytest.approx([1 / 8, 0.5 / 0.286411], rel=1e-5)


def test_a_lower_loss_is_better_and_guesses_may_be_missing():
    """Loss ln 10 against ln 20: half the perplexity. The last blessed model may have no guesses."""
    weight = np.array([1.0, 2.0, 3.0])
    noise = np.array([0.1, -0.1, 0.1 / 3])
    batches = {"mlm_nll": weight * (math.log(10) + noise), "mlm_weight": weight}
    batches["mlm_nll_guessed"] = (weight * math.log(20))[:, None]
    perplexity, _, _, chance, over = compute_all(MlmPerplexity(), [batches], chance=True)
    assert [perplexity, chance] == pytest.approx([10.0, 20.0], rel=1e-6) and over > 2.0
    batches["mlm_nll_guessed"] = (weight * math.log(5))[:, None]
    assert compute_all(MlmPerplexity(), [batches], chance=True)[4] < -2.0
    assert [math.isnan(value) for value in compute_all(MlmPerplexity(), BATCHES, chance=True)[3:]] == [True, True]
