"""The optimizers: the original's Adam (optimization.py), AdamW, LAMB (arXiv 1904.00962); ELECTRA's layer-wise rates."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.training.config import TrainingConfig
from bert_keras.training.optimizer import (
    LAMB,
    OPTIMIZERS,
    AdamW,
    BertAdam,
    create_optimizer,
    is_frozen,
    layer_multiplier,
)
from bert_keras.training.schedules import create_schedule

ALL = pytest.mark.parametrize("optimizer", OPTIMIZERS.values())
SETTINGS = {
    "weight_decay": 0.01,
    "beta_2": 0.999,
    "epsilon": 1e-6,
    "decay_all": False,
    "layer_decay": 1.0,
    "freeze_layers": 0,
    "freeze_steps": 0,
}


def make(optimizer, learning_rate, **settings):
    settings = {**SETTINGS, "schedule": "constant", "num_warmup_steps": 0, **settings}
    return optimizer(TrainingConfig(learning_rate=learning_rate, **settings), num_layers=2)


def variable(name, value):
    """A float32 variable whose path is `name`, a layer and a weight."""
    layer_name, weight = name.split("/")
    layer = keras.layers.Layer(name=layer_name)
    value = np.asarray(value, "float32")
    return layer.add_weight(name=weight, shape=value.shape, initializer=lambda *_, **__: value)


def apply(optimizer, variables, gradients):
    optimizer.apply([keras.ops.convert_to_tensor(np.asarray(g, "float32")) for g in gradients], variables)
    return [np.asarray(v) for v in variables]


def test_two_steps_by_hand():
    """Gradients 1 then 3, weight 2, rate .1, decay .01, epsilon 1e-6 outside the root.

    The first step is 3.16 rates, not one.
    Step 1: m .1, v .001; update .1 / (.0316228 + 1e-6) + .02 = 3.1821777; w = 2 - .31821777 = 1.68178223
    Step 2: m .39, v .009999; update .39 / (.0999950 + 1e-6) + .0168178 = 3.9169738; w = 1.29008485
    """
    kernel = variable("dense/kernel", [2.0])
    optimizer = make(BertAdam, 0.1)
    (after,) = apply(optimizer, [kernel], [[1.0]])
    assert after[0] == pytest.approx(1.68178223, rel=1e-6)
    (after,) = apply(optimizer, [kernel], [[3.0]])
    assert after[0] == pytest.approx(1.29008485, rel=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "epsilon", "step"),
    [
        (BertAdam, 1e-6, 0.00499211),  # m / (sqrt(v) + epsilon) = 5e-9 / (1.58114e-9 + 1e-6)
        (AdamW, 1e-6, 0.00157864),  # sqrt(.001) / .1 times that
        (AdamW, 1e-8, 0.136527),  # SpanBERT's epsilon
        (LAMB, 1e-6, 0.0476190),  # 5e-8 / (5e-8 + 1e-6): epsilon is added to the corrected root; so does PyTorch's Adam
    ],
)
def test_where_epsilon_is_added(optimizer, epsilon, step):
    """A first gradient of 5e-8, betas .9 and .999: m = 5e-9, sqrt(v) = 1.58114e-9."""
    bias = variable("dense/bias", [0.0])
    (after,) = apply(make(optimizer, 1.0, epsilon=epsilon), [bias], [[5e-8]])
    assert -after[0] == pytest.approx(step, rel=1e-5)


def test_two_steps_of_lamb_by_hand():
    """Weights (3, 4), gradients (1, -1) then (0, 2), rate .1, decay .01, betas .9 and .999, epsilon 1e-6.

    Step 1: means without bias (1, -1) and (1, 1); direction (.999999, -.999999); decayed (1.029999, -.959999), of norm
            1.4080114; trust 5 / 1.4080114 = 3.5511077; w = (3 - .36576374, 4 + .34090598)
    Step 2: m (.09, .11) / .19 = (.4736842, .5789474); v (.000999, .004999) / .001999 = (.4997499, 2.5007504);
            direction (.6700573, .3661033); decayed (.6963997, .4095124), of norm .8078817;
            trust 5.0776634 / .8078817 = 6.2851569; w = (2.19653814, 4.08352104)
    """
    kernel = variable("dense/kernel", [3.0, 4.0])
    optimizer = make(LAMB, 0.1)
    (after,) = apply(optimizer, [kernel], [[1.0, -1.0]])
    np.testing.assert_allclose(after, [2.63423626, 4.34090598], rtol=2e-7)
    (after,) = apply(optimizer, [kernel], [[0.0, 2.0]])
    np.testing.assert_allclose(after, [2.19653814, 4.08352104], rtol=2e-7)


@pytest.mark.parametrize(
    ("name", "weight", "gradient", "after"),
    [
        ("dense/kernel", 0.0, 2.0, -0.1),  # no weights yet: trust 1, and the direction of a first step is 1
        ("dense/kernel", 5.0, 0.0, 4.5),  # decay alone: .05, times trust 5 / .05
        ("dense/kernel", 0.0, 0.0, 0.0),  # neither: not 0 / 0
        ("dense/bias", 5.0, 2.0, 4.9),  # not decayed, and not rescaled
        ("dense/bias", 5.0, 0.0, 5.0),
    ],
)
def test_lambs_trust_is_one_without_norms_and_without_decay(name, weight, gradient, after):
    (result,) = apply(make(LAMB, 0.1), [variable(name, [weight])], [[gradient]])
    assert result[0] == pytest.approx(after, rel=1e-6, abs=1e-12)


def test_lamb_without_weight_decay_still_rescales():
    (after,) = apply(make(LAMB, 0.1, weight_decay=0.0), [variable("dense/kernel", [5.0])], [[0.0]])
    assert after[0] == 5.0  # the update is 0: trust 1
    (after,) = apply(make(LAMB, 0.1, weight_decay=0.0), [variable("dense/kernel", [5.0])], [[1.0]])
    assert after[0] == pytest.approx(4.5, rel=1e-6)


NAMES = (
    "dense/bias",
    "layer_norm/gamma",
    "layer_norm/beta",
    "norm/gamma",
    "predictions/output_bias",
    "dense/kernel",
    "word_embeddings/embeddings",
)


@pytest.mark.parametrize("optimizer", [BertAdam, AdamW])
def test_biases_and_layer_norms_are_not_decayed_embeddings_are(optimizer):
    variables = [variable(name, [1.0]) for name in NAMES]
    after = apply(make(optimizer, 1.0, weight_decay=0.25), variables, [[0.0]] * len(NAMES))
    assert [float(a[0]) for a in after] == [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.75]


@ALL
def test_decay_all_decays_all(optimizer):
    """LAMB's trust is 1 / .25 then: all go in one step of rate 1."""
    variables = [variable(name, [1.0]) for name in NAMES]
    after = apply(make(optimizer, 1.0, weight_decay=0.25, decay_all=True), variables, [[0.0]] * len(NAMES))
    assert [float(a[0]) for a in after] == [0.0 if optimizer is LAMB else 0.75] * len(NAMES)


@pytest.fixture(scope="module")
def model():
    model = BertForPreTraining(BertConfig.size(2, 64, vocab_size=20))
    model.build()
    return model


def test_every_variable_is_decayed_or_excluded(model):
    """Guards the names: a renamed layer norm would be decayed without a word."""
    optimizer = make(BertAdam, 0.1)
    optimizer.build(model.trainable_variables)
    decayed = {v.path for v, yes in zip(model.trainable_variables, optimizer._decayed, strict=True) if yes}
    assert decayed == {v.path for v in model.trainable_variables if re.search("kernel$|embeddings$", v.path)}
    assert len(decayed) == 3 + 2 * 6 + 1 + 1 + 1


@pytest.mark.parametrize(
    ("path", "multiplier"),
    [
        ("classifier/bert/embeddings/word_embeddings/embeddings", 0.0440),
        ("bert/embeddings/layer_norm/gamma", 0.0440),
        ("embeddings/position_embeddings/embeddings", 0.0440),
        ("bert/relative_positions/embeddings", 0.0440),
        ("bert/layer_0/attention/query/kernel", 0.0550),
        ("bert/layer_1/output_layer_norm/beta", 0.0687),
        ("bert/layer_11/output/bias", 0.64),
        ("bert/pooler/kernel", 1.0),
        ("classifier/logits/kernel", 1.0),
        ("predictions/layer_norm/gamma", 1.0),
        ("span_boundary/target_positions/embeddings", 1.0),
    ],
)
def test_layer_wise_rates(path, multiplier):
    assert layer_multiplier(path, 0.8, 12) == pytest.approx(multiplier, abs=5e-5)
    assert layer_multiplier(path, 1.0, 12) == 1.0
    assert is_frozen(path, 1) == (multiplier <= 0.055)


def test_every_variable_of_the_model_has_its_rate(model):
    """Guards the names: .5 ** 4 for the 5 of the embeddings, .5 ** 3 and .5 ** 2 for 16 a layer, 1 for the heads."""
    optimizer = make(AdamW, 0.1, layer_decay=0.5)
    optimizer.build(model.trainable_variables)
    rates, counts = np.unique(optimizer._multipliers, return_counts=True)
    assert dict(zip(rates, counts, strict=True)) == {0.0625: 5, 0.125: 16, 0.25: 16, 1.0: 2 + 5 + 2}


def test_a_layer_that_the_model_should_not_have_is_named():
    with pytest.raises(ValueError, match="bert/layer_12/output/kernel is in encoder layer 12, but num_layers is 12"):
        layer_multiplier("bert/layer_12/output/kernel", 0.8, 12)


@ALL
def test_layer_wise_rates_scale_the_whole_update(optimizer):
    """The step of each variable, decay and trust too, is its multiplier times that without layer-wise rates."""
    names = ("embeddings/table", "layer_0/kernel", "layer_1/bias", "pooler/kernel")
    steps = {}
    for layer_decay in (1.0, 0.5):
        variables = [variable(name, [1.0, -2.0]) for name in names]
        after = apply(make(optimizer, 0.1, layer_decay=layer_decay), variables, [[0.3, 0.1]] * len(names))
        steps[layer_decay] = np.stack(after) - [1.0, -2.0]
    ratios = steps[0.5] / steps[1.0]
    np.testing.assert_allclose(ratios, np.outer([0.0625, 0.125, 0.25, 1.0], [1, 1]), rtol=1e-5)


def test_adamw_is_keras_own_where_nothing_is_excluded():
    generator = np.random.default_rng(7)
    start = generator.normal(size=(5, 3))
    ours, theirs = variable("dense/kernel", start), variable("dense/kernel", start)
    optimizer = make(AdamW, 1e-2, beta_2=0.98)
    keras_own = keras.optimizers.AdamW(1e-2, weight_decay=0.01, beta_1=0.9, beta_2=0.98, epsilon=1e-6)
    for _ in range(20):
        gradient = generator.normal(size=(5, 3))
        (a,), (b,) = apply(optimizer, [ours], [gradient]), apply(keras_own, [theirs], [gradient])
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    assert np.abs(a - start).max() > 0.05


@ALL
def test_compiled_and_eager_steps_agree(optimizer):
    names, generator = ("layer_0/kernel", "layer_0/bias"), np.random.default_rng(8)
    eager, compiled = [[variable(name, [1.0, -2.0, 0.0]) for name in names] for _ in range(2)]
    one, other = (make(optimizer, 0.1, layer_decay=0.5) for _ in range(2))
    other.build(compiled)
    step = tf.function(lambda *gradients: other.apply(list(gradients), compiled))
    for _ in range(3):
        gradients = [tf.constant(generator.normal(size=3), tf.float32) for _ in names]
        step(*gradients)
        for a, b in zip(apply(one, eager, gradients), compiled, strict=True):
            np.testing.assert_allclose(a, np.asarray(b), rtol=1e-6, atol=1e-7)
    assert int(other.iterations) == 3


@ALL
def test_a_run_resumes_exactly_from_the_optimizer_s_variables(optimizer):
    """The step of the bias correction is in them, with the means."""
    kernel, first = variable("dense/kernel", [3.0, 4.0]), make(optimizer, 0.1)
    for gradient in ([1.0, -1.0], [0.0, 2.0]):
        apply(first, [kernel], [gradient])
    restored, again = variable("dense/kernel", kernel), make(optimizer, 0.1)
    again.build([restored])
    for ours, theirs in zip(again.variables, first.variables, strict=True):
        ours.assign(theirs)
    np.testing.assert_array_equal(*(apply(*pair, [[0.5, 0.5]]) for pair in ((first, [kernel]), (again, [restored]))))


@ALL
def test_under_mixed_bfloat16_everything_stays_float32(optimizer):
    """The same step as in float32, though the gradient comes as bfloat16 (1.5 and -.25 are exact in it)."""
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        kernel = variable("dense/kernel", [1.0, 3.0])
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    mixed = make(optimizer, 0.001)
    mixed.apply([tf.constant([1.5, -0.25], tf.bfloat16)], [kernel])
    (expected,) = apply(make(optimizer, 0.001), [variable("dense/kernel", [1.0, 3.0])], [[1.5, -0.25]])
    assert {v.dtype for v in (kernel, *mixed._momentums, *mixed._velocities)} == {"float32"}
    np.testing.assert_array_equal(np.asarray(kernel), expected)


def test_the_default_optimizer_of_a_run_is_the_originals():
    config = TrainingConfig()
    optimizer = create_optimizer(config, num_layers=2)
    assert type(optimizer) is BertAdam
    assert {name: getattr(optimizer.config, name) for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_of_a_run_has_its_settings(name):
    settings = {"beta_2": 0.98, "epsilon": 1e-8, "decay_all": True, "layer_decay": 0.9}
    config = TrainingConfig(num_train_steps=10, num_warmup_steps=2, optimizer=name, weight_decay=0.1, **settings)
    optimizer = create_optimizer(config, num_layers=3)
    assert type(optimizer) is OPTIMIZERS[name]
    assert (optimizer.config, optimizer.num_layers) == (config, 3)
    assert vars(optimizer._learning_rate) == vars(create_schedule(config))


def test_the_rate_follows_the_steps():
    config = TrainingConfig(num_train_steps=10, num_warmup_steps=2, learning_rate=0.5)
    optimizer = create_optimizer(config, num_layers=1)
    kernel = variable("dense/kernel", [1.0])
    rates = []
    for _ in range(4):
        rates.append(round(float(optimizer.learning_rate), 6))
        apply(optimizer, [kernel], [[1.0]])
    assert rates == [0.0, 0.25, 0.4, 0.35]


@pytest.mark.parametrize("setting", ["beta_2", "epsilon", "layer_decay"])
@pytest.mark.parametrize("value", [-0.5, 0.0, 1.5, float("nan")])
def test_settings_out_of_range_are_named(setting, value):
    if (setting, value) == ("epsilon", 1.5):
        TrainingConfig(epsilon=value)
        return
    with pytest.raises(ValueError, match=f"training.{setting}"):
        TrainingConfig(**{setting: value})
