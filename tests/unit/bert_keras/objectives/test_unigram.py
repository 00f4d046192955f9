"""Guesses that ignore the context, on given features; test_pretraining.py has those of examples in files."""

import math

import numpy as np
import tensorflow as tf

from bert_keras.objectives.unigram import guessed_sums


def test_guesses_of_pairs_and_of_the_commonest_token():
    """Two rows of two sequences each, of which the last is none: B follows, is random, follows. Token 1 is common."""
    features = {
        "masked_lm_ids": tf.constant([[1, 2, 1], [1, 0, 0]]),
        "masked_lm_weights": tf.constant([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
        "next_sentence_labels": tf.constant([[0, 1], [0, 0]]),
        "next_sentence_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
    }
    log_p = np.log(np.array([0.25, 0.5, 0.25], "float32"))
    sums = guessed_sums("mlm_nsp", features, log_p)
    assert sums["mlm_correct_guessed"].numpy().tolist() == [[2.0], [1.0]]
    np.testing.assert_allclose(sums["mlm_nll_guessed"], [[4 * math.log(2)], [math.log(2)]], rtol=1e-6)
    assert sums["nsp_correct_guessed"].numpy().tolist() == [[1.0, 1.0], [1.0, 0.0]]


def test_a_bilm_has_a_guess_of_the_next_and_of_the_previous_token():
    features = {"input_ids": tf.constant([[0, 1, 2, 3]]), "input_mask": tf.constant([[1, 1, 1, 0]])}
    log_p = np.log(np.array([0.125, 0.5, 0.25, 0.125], "float32"))
    sums = guessed_sums("bidirectional", features, log_p)
    np.testing.assert_allclose(sums["forward_lm_nll_guessed"], [[(1 + 2) * math.log(2)]], rtol=1e-6)  # 1, 2
    np.testing.assert_allclose(sums["backward_lm_nll_guessed"], [[(3 + 1) * math.log(2)]], rtol=1e-6)  # 0, 1
