"""The gate's metrics against arithmetic by hand."""

import math

import numpy as np
import pytest
import tensorflow_model_analysis as tfma

from components.evaluator.metrics import MlmAccuracy, MlmPerplexity, NspAccuracy
from components.evaluator.results import HIGH, LOW

# Two batches, of two examples and of one: 8 predictions, 5 right, 8 ln 2 + 8 ln 5 nats; 3 pairs, 2 right.
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
    """The metric, without the ends of its interval."""
    return compute_all(metric, batches, model_name)[0]


def compute_all(metric, batches, model_name=""):
    """One accumulator a batch, merged, as Beam does: the metric, the lower and the upper end of its interval."""
    (computation,) = metric.computations(model_names=[model_name])
    combiner = computation.combiner
    accumulators = []
    for batch in batches:
        outputs = {name: np.array(values, np.float32) for name, values in batch.items()}
        predictions = {model_name: outputs} if model_name else outputs
        inputs = tfma.metrics.StandardMetricInputs({tfma.PREDICTIONS_KEY: predictions})
        accumulators.append(combiner.add_input(combiner.create_accumulator(), inputs))
    found = combiner.extract_output(combiner.merge_accumulators(accumulators))
    assert [key.name for key in found] == [metric.name, metric.name + LOW, metric.name + HIGH]
    assert {key.model_name for key in found} == {model_name}
    return list(found.values())


@pytest.mark.parametrize("model_name", ["", "candidate"])
@pytest.mark.parametrize(
    ("metric", "name", "expected"),
    [
        (MlmAccuracy, "mlm_accuracy", 5 / 8),
        # exp((8 ln 2 + 8 ln 5) / 8) = 2 * 5: over all predictions, not a mean of the batches' perplexities.
        (MlmPerplexity, "mlm_perplexity", 10.0),
        (NspAccuracy, "nsp_accuracy", 2 / 3),
    ],
)
def test_by_hand(metric, name, expected, model_name):
    assert metric().name == name
    assert compute(metric(), BATCHES, model_name) == pytest.approx(expected, rel=1e-6)


def test_the_interval_by_hand():
    # One pair an example, so that the error of 2 of 3 is the textbook's: sqrt(2/3 * 1/3 / (3 - 1)) = 1/3.
    assert compute_all(NspAccuracy(), BATCHES)[1:] == pytest.approx([2 / 3 - 1.96 / 3, 1.0])
    # Of 3, 4 and 1 tokens 2, 1 and 2 are right, 5/8 of all. They are 1/8, -12/8 and 11/8 from that share of their own:
    # error sqrt(3/2 * 266/64 / 8^2) = 0.312109, 1.96 times is 0.611734, and no share is above 1.
    assert compute_all(MlmAccuracy(), BATCHES)[1:] == pytest.approx([0.625 - 0.611734, 1.0], abs=1e-6)
    # Of the perplexity it is that of the loss: no loss varies here, and of one example nothing is known.
    even = {"mlm_nll": [math.log(2), 3 * math.log(2)], "mlm_weight": [1.0, 3.0]}
    assert compute_all(MlmPerplexity(), [even]) == pytest.approx([2.0, 2.0, 2.0], rel=1e-6)
    one = {name: values[:1] for name, values in even.items()}
    assert [math.isnan(value) for value in compute_all(MlmPerplexity(), [one])] == [False, True, True]


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """400 samples of 50 texts, whose tokens are right with a share of the text's own, 0.6 on the average."""
    generator, hits = np.random.default_rng(0), 0
    for _ in range(400):
        weight = generator.integers(1, 20, 50).astype(float)
        correct = generator.binomial(weight.astype(int), generator.uniform(0.3, 0.9, 50)).astype(float)
        _, low, high = compute_all(MlmAccuracy(), [{"mlm_correct": correct, "mlm_weight": weight}])
        hits += low <= 0.6 <= high
    assert 0.91 < hits / 400 < 0.98


@pytest.mark.parametrize("metric", [MlmAccuracy, MlmPerplexity, NspAccuracy])
def test_nothing_to_measure_is_not_a_number(metric):
    zeros = {name: [0.0] * len(values) for name, values in BATCHES[0].items()}
    assert math.isnan(compute(metric(), [zeros]))


def test_a_model_that_diverged():
    assert math.isnan(compute(MlmPerplexity(), [{**BATCHES[0], "mlm_nll": [math.nan, 1.0]}]))
    assert math.isfinite(compute(MlmPerplexity(), [{**BATCHES[0], "mlm_nll": [1e9, 1.0]}]))


@pytest.mark.parametrize("batches", [1, 3])
def test_sums_stay_exact(batches):
    # 2 ** 24 + 1 is no float32; the second pair of three is right, the third is not.
    correct, weight = [2.0**24, 1.0, 0.0], [2.0**24, 1.0, 1.0]
    if batches == 1:
        rows = [{"nsp_correct": correct, "nsp_weight": weight}]
    else:
        rows = [{"nsp_correct": [c], "nsp_weight": [w]} for c, w in zip(correct, weight, strict=True)]
    assert compute(NspAccuracy(), rows) == (2**24 + 1) / (2**24 + 2)
