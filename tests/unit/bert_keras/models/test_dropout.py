"""Dropout's masks: the rate, independence within a call and between calls, and the same bits everywhere."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models.dropout import Dropout, RandomStates, random_bits
from tests.support.models import every_model

SHAPE = (64, 2, 64, 128)
GOLDEN = [[3427884616, 1707231070, 2320216298], [2062679093, 3027140547, 1144361860]]


def dropped(call, rate=0.1, seed=3):
    """0.9 where an element is dropped, else -0.1: of mean 0 and variance 0.09, [rows, 128]."""
    bits = np.asarray(random_bits(SHAPE, np.array([seed, call])))
    return (bits < round(rate * 2**32)).reshape(-1, SHAPE[-1]) - rate


def test_a_fixed_mask():
    """Golden values from this code on the TensorFlow and JAX backends; a change alters every seeded training."""
    assert np.asarray(random_bits((2, 3), np.array([3, 5]))).tolist() == GOLDEN


def test_the_dropout_rate_is_as_configured():
    sigma = 0.3 / np.sqrt(np.prod(SHAPE))
    assert abs(dropped(0).mean()) < 4 * sigma


@pytest.mark.parametrize("lag", [1, 2, 7, 64])
def test_elements_are_independent_of_their_neighbours_and_of_other_calls(lag):
    first, next_call, next_seed = dropped(0), dropped(lag), dropped(0, seed=3 + lag)
    sigma = 0.09 / np.sqrt(first.size)
    pairs = {
        "columns": first[:, lag:] * first[:, :-lag],
        "rows": first[lag:] * first[:-lag],
        "calls": first * next_call,
        "shifted calls": first[:, lag:] * next_call[:, :-lag],
        "seeds": first * next_seed,
        "shifted seeds": first[:, lag:] * next_seed[:, :-lag],
    }
    for name, products in pairs.items():
        assert abs(products.mean()) < 5 * sigma, name


def test_no_row_is_drawn_twice():
    rows = np.concatenate([dropped(0), dropped(1), dropped(0, seed=4)])
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_sums_of_rows_and_columns_have_binomial_variance():
    mask = dropped(1)
    assert mask.sum(1).var() / (0.09 * mask.shape[1]) == pytest.approx(1, abs=0.08)
    assert mask.sum(0).var() / (0.09 * mask.shape[0]) == pytest.approx(1, abs=0.5)


def test_kept_elements_are_scaled_and_calls_differ():
    layer = Dropout(0.25, seed=1)
    x = np.full((8, 1000), 3.0, "float32")
    first, second = (np.asarray(layer(x, training=True)) for _ in range(2))
    assert set(np.unique(first)) == {0.0, 4.0}
    assert (first != second).any()
    np.testing.assert_array_equal(layer(x, training=False), x)
    again = Dropout(0.25, seed=1)
    np.testing.assert_array_equal(again(x, training=True), first)
    assert isinstance(layer, keras.layers.Dropout)  # what the training loop looks for, to keep its state


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_compiled_call_draws_the_same_and_stops_the_gradient_where_it_drops(jit_compile):
    x = tf.ones((4, 100))
    expected = np.asarray(Dropout(0.5, seed=7)(x, training=True))
    layer = Dropout(0.5, seed=7)

    @tf.function(jit_compile=jit_compile, input_signature=[tf.TensorSpec([None, 100])])
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x)

    y, gradient = call(x)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(gradient, expected)


# One of each encoder and head that drops out.
@pytest.mark.parametrize(
    "name",
    [
        *("bert", "albert", "modern", "mpnet, packed", "deberta", "electra", "deberta-v3", "spanbert"),
        *("left to right", "bilm", "classification", "multiple choice", "span", "features", "bilm's features"),
    ],
)
def test_draws_per_call_is_an_upper_bound(name, monkeypatch):
    """Otherwise a step would reuse the masks of the next one (`RandomStates`)."""
    init, case = keras.layers.Dropout.__init__, every_model.CASES[name]
    # Of the cases none drops out.
    monkeypatch.setattr(keras.layers.Dropout, "__init__", lambda self, rate, **other: init(self, 0.1, **other))
    model = case.make()
    model.build()
    states, call = RandomStates(model), 5
    with keras.StatelessScope(states.of(tf.constant(call, tf.int64))) as scope:
        model(case.features(), training=True)
    draws = states._draws
    drawn = [int(scope.get_current_value(state)[1]) - call * draws for state, _ in states._states]
    assert max(drawn) <= draws
