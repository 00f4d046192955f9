"""The gate's metrics against arithmetic by hand."""

import math

import numpy as np
import pytest
import tensorflow_model_analysis as tfma

from components.evaluator.metrics import MlmAccuracy, MlmPerplexity, NspAccuracy

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
    """One accumulator a batch, merged, as Beam does."""
    (computation,) = metric.computations(model_names=[model_name])
    combiner = computation.combiner
    accumulators = []
    for batch in batches:
        outputs = {name: np.array(values, np.float32) for name, values in batch.items()}
        predictions = {model_name: outputs} if model_name else outputs
        inputs = tfma.metrics.StandardMetricInputs({tfma.PREDICTIONS_KEY: predictions})
        accumulators.append(combiner.add_input(combiner.create_accumulator(), inputs))
    ((key, value),) = combiner.extract_output(combiner.merge_accumulators(accumulators)).items()
    assert key.name == metric.name and key.model_name == model_name
    return value


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
