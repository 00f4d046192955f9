"""Masked-LM and next-sentence sums, computed by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.objectives import mlm
from bert_keras.objectives.mlm_nsp import OBJECTIVE, example_sums, nll_and_hits
from tests.support.models.rounding import assert_equal_but_for_rounding


def test_sums_by_hand():
    """V = 2.

    Row 0: logits (0, log 3) for label 1 (p = 3/4, hit), (0, 0) for label 1 (p = 1/2, arg max 0: miss), padding.

    Row 1: one prediction, logits (log 4, 0) for label 1 (p = 1/5, miss). NSP: p = 3/4 right; p = 1/2, tie goes to 0.
    """
    log = math.log
    outputs = {
        "mlm_logits": np.array([[[0, log(3)], [0, 0], [9, 0]], [[log(4), 0], [0, 0], [0, 0]]], "float32"),
        "nsp_logits": np.array([[0, log(3)], [0, 0]], "float32"),
    }
    labels = {
        "masked_lm_ids": np.array([[1, 1, 0], [1, 0, 0]]),
        "masked_lm_weights": np.array([[1, 1, 0], [1, 0, 0]], "float32"),
        "next_sentence_labels": np.array([[1], [1]]),
    }
    sums = {k: np.asarray(v) for k, v in example_sums(outputs, labels).items()}
    assert tuple(sums) == OBJECTIVE.sums
    assert_equal_but_for_rounding(sums["mlm_nll"], [-log(3 / 4) - log(1 / 2), -log(1 / 5)], 4)
    np.testing.assert_array_equal(sums["mlm_correct"], [1, 0])
    np.testing.assert_array_equal(sums["mlm_weight"], [2, 1])
    assert_equal_but_for_rounding(sums["nsp_nll"], [-log(3 / 4), -log(1 / 2)], 4)
    np.testing.assert_array_equal(sums["nsp_correct"], [1, 0])
    np.testing.assert_array_equal(sums["nsp_weight"], [1, 1])
    alone = mlm.example_sums(outputs, labels)
    assert tuple(alone) == mlm.OBJECTIVE.sums
    for name, value in alone.items():
        np.testing.assert_array_equal(value, sums[name])


def test_the_gradient_of_the_likelihood_is_softmax_minus_one_hot():
    """Hand-written: also for logits that are far apart, equal, or of padded predictions (weight 0)."""
    generator = np.random.default_rng(0)
    logits = np.concatenate([generator.normal(0, s, (2, 3, 11)) for s in (0.1, 1, 30)]).astype("float32")
    logits[0, 0] = 0.0
    ids = generator.integers(0, 11, (6, 3)).astype("int32")
    upstream = generator.normal(size=(6, 3)).astype("float32")
    upstream[1, 2] = 0.0
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        nll, hits = nll_and_hits(variable, ids)
        total = tf.reduce_sum(nll * upstream)
    exact = logits.astype("float64")
    probabilities = np.exp(exact - exact.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    expected = (probabilities - np.eye(11)[ids]) * upstream[..., None]
    assert_equal_but_for_rounding(tape.gradient(total, variable), expected, 2 * 11)
    lse = exact.max(-1) + np.log(np.exp(exact - exact.max(-1, keepdims=True)).sum(-1))
    expected = lse - np.take_along_axis(exact, ids[..., None], -1)[..., 0]
    assert_equal_but_for_rounding(nll, expected, 11, np.abs(exact).max())
    np.testing.assert_array_equal(hits, exact.argmax(-1) == ids)


def test_losses_are_means_over_weights_not_slots():
    metrics = OBJECTIVE.metrics(
        {"mlm_nll": 6.0, "mlm_correct": 1.0, "mlm_weight": 3.0, "nsp_nll": 1.0, "nsp_correct": 3.0, "nsp_weight": 4.0}
    )
    assert metrics == pytest.approx(
        {"loss": 2.25, "mlm_loss": 2.0, "mlm_accuracy": 1 / 3, "nsp_loss": 0.25, "nsp_accuracy": 0.75}
    )


def test_metrics_without_predictions_are_zero():
    metrics = OBJECTIVE.metrics(dict.fromkeys(OBJECTIVE.sums, 0.0))
    assert set(metrics.values()) == {0.0}
