"""The original's Adam and schedule (FACTS D3)."""

import re

import keras
import numpy as np
import pytest

from bert_keras.config import TrainingConfig
from bert_keras.optimizer import BertAdam, WarmupLinearDecay, create_optimizer


def variable(name, value):
    layer = keras.layers.Layer(name=name.rpartition("/")[0] or "dense")
    return layer.add_weight(name=name.rpartition("/")[2], shape=np.shape(value), initializer=lambda *_, **__: value)


def apply(optimizer, variables, gradients):
    optimizer.apply([keras.ops.convert_to_tensor(np.asarray(g, "float32")) for g in gradients], variables)
    return [np.asarray(v) for v in variables]


def test_d3_the_first_step_is_3_16_rates_not_one():
    """m = .1 g, v = .001 g^2: m / sqrt(v) = 3.1623 sign(g)."""
    kernel = variable("dense/kernel", np.array([1.0, 1.0, 1.0], "float32"))
    (after,) = apply(BertAdam(0.01, weight_decay_rate=0.0), [kernel], [[0.5, -2.0, 100.0]])
    np.testing.assert_allclose(1.0 - after, 0.01 * 3.1623 * np.array([1, -1, 1]), rtol=1e-4)


def test_d3_two_steps_by_hand():
    """Gradients 1 then 3, weight 2, rate .1, decay .01, epsilon 1e-6 outside the root.

    Step 1: m .1, v .001; update .1 / (.0316228 + 1e-6) + .02 = 3.1821777; w = 2 - .31821777 = 1.68178223
    Step 2: m .39, v .009999; update .39 / (.0999950 + 1e-6) + .0168178 = 3.9169738; w = 1.29008485
    """
    kernel = variable("dense/kernel", np.array([2.0], "float32"))
    optimizer = BertAdam(0.1)
    (after,) = apply(optimizer, [kernel], [[1.0]])
    assert after[0] == pytest.approx(1.68178223, rel=1e-6)
    (after,) = apply(optimizer, [kernel], [[3.0]])
    assert after[0] == pytest.approx(1.29008485, rel=1e-6)


def test_d3_biases_and_layer_norms_are_not_decayed_embeddings_are():
    names = (
        "dense/bias",
        "layer_norm/gamma",
        "layer_norm/beta",
        "predictions/output_bias",
        "dense/kernel",
        "word_embeddings/embeddings",
    )
    variables = [variable(name, np.array([1.0], "float32")) for name in names]
    after = apply(BertAdam(1.0, weight_decay_rate=0.25), variables, [[0.0]] * len(names))
    assert [float(a[0]) for a in after] == [1.0, 1.0, 1.0, 1.0, 0.75, 0.75]


def test_every_variable_of_the_model_is_on_its_side():
    """Guards the names: a renamed layer norm would be decayed without a word."""
    from bert_keras.config import BertConfig
    from bert_keras.heads import BertForPreTraining

    model = BertForPreTraining(BertConfig.size(1, 64, vocab_size=20))
    model.build()
    optimizer = BertAdam(0.1)
    optimizer.build(model.trainable_variables)
    decayed = {v.path for v, yes in zip(model.trainable_variables, optimizer._decayed, strict=True) if yes}
    assert decayed == {v.path for v in model.trainable_variables if re.search("kernel$|embeddings$", v.path)}
    assert len(decayed) == 3 + 6 + 1 + 1 + 1


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.0), (1, 1e-8), (9_999, 0.9999e-4), (10_000, 0.99e-4), (500_000, 0.5e-4), (1_000_000, 0.0), (1_000_001, 0.0)],
)
def test_d3_schedule_jumps_where_the_warm_up_ends(step, rate):
    assert float(WarmupLinearDecay(1e-4, 1_000_000, 10_000)(step)) == pytest.approx(rate, rel=1e-5, abs=1e-13)


def test_without_warm_up_the_first_rate_is_the_peak():
    assert float(WarmupLinearDecay(1e-4, 100, 0)(0)) == pytest.approx(1e-4)


def test_the_optimizer_of_a_run_has_its_settings():
    optimizer = create_optimizer(TrainingConfig(num_train_steps=10, num_warmup_steps=2, learning_rate=0.5))
    kernel = variable("dense/kernel", np.array([1.0], "float32"))
    rates = []
    for _ in range(4):
        rates.append(round(float(optimizer.learning_rate), 6))
        apply(optimizer, [kernel], [[1.0]])
    assert rates == [0.0, 0.25, 0.4, 0.35]


def test_config_round_trip():
    optimizer = create_optimizer(TrainingConfig())
    again = BertAdam.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
