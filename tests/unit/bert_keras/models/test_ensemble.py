"""An ensemble answers with the mean of its members' probabilities."""

import keras
import numpy as np
from scipy.special import softmax

from bert_keras.models.ensemble import Ensemble


def test_an_ensemble_of_spans_adds_probabilities():
    members = [
        lambda inputs, training, scale=scale: {"start_logits": inputs["input_ids"] * scale} for scale in (1.0, -2.0)
    ]
    ensemble = Ensemble([keras.Sequential()])
    ensemble.models = members
    inputs = {"input_ids": np.array([[1.0, 0.0, 2.0, 9.0]]), "input_mask": np.array([[1, 1, 1, 0]])}
    odds = np.exp(np.asarray(ensemble(inputs)["start_logits"]))
    expected = (softmax([[1.0, 0.0, 2.0]]) + softmax([[-2.0, 0.0, -4.0]])) / 2
    np.testing.assert_allclose(odds, np.pad(expected, [[0, 0], [0, 1]]), atol=1e-6)
