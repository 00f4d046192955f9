"""The features of the paper's section 5.3 for a BiLSTM: layers, frozen encoder, masks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.feature_based import FeatureReader
from bert_keras.models.task_models import BertForTokenClassification
from tests.support.models.every_model import TAGS, loss_of
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of

TINY = BertConfig.size(5, 16, vocab_size=40, max_position_embeddings=16)
B, T, H, LABELS = 16, 6, 16, 3


def inputs(rows=B, length=T, padding=1, seed=0):
    """Random sequences, every second one with `padding` positions of padding."""
    generator = np.random.default_rng(seed)
    mask = np.ones((rows, length), "int32")
    mask[::2, length - padding :] = 0
    ids = generator.integers(1, TINY.vocab_size, mask.shape).astype("int32")
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": np.zeros_like(mask)}


def create(features="concat_last_four", **other):
    model = BertForTokenClassification(TINY, LABELS, features=features, lstm_units=12, seed=4, **other)
    model.build()
    return model


@pytest.fixture(scope="module")
def outputs():
    """Those of a BERT of five layers, for `inputs`."""
    backbone = BertBackbone(TINY, seed=4)
    return backbone(inputs())


def reader_of(features):
    reader = FeatureReader(TINY, features, 12, seed=4)
    reader.build(None)
    return reader


def array(x):
    return np.asarray(keras.ops.cast(x, "float32"))


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("embeddings", lambda e, layers: e),
        ("last", lambda e, layers: layers[4]),
        ("second_to_last", lambda e, layers: layers[3]),
        ("0", lambda e, layers: e),
        ("1", lambda e, layers: layers[0]),
        ("5", lambda e, layers: layers[4]),
        ("-1", lambda e, layers: layers[4]),
        ("-5", lambda e, layers: layers[0]),
        ("sum_last_four", lambda e, layers: sum(layers[1:])),
        ("sum_all", lambda e, layers: sum(layers)),
        # Before training, every layer has the same weight; below, others.
        ("weighted_sum_last_four", lambda e, layers: sum(layers[1:]) / 4),
        ("weighted_sum_all", lambda e, layers: sum(layers) / 5),
        ("concat_last_four", lambda e, layers: np.concatenate(layers[1:], -1)),
        ("scalar_mix", lambda e, layers: (e + sum(layers)) / 6),
    ],
)
def test_features_are_those_layers(outputs, features, expected):
    layers = [array(output) for output in outputs["encoder_outputs"]]
    assert len(layers) == 5  # without the embedding output
    chosen = array(reader_of(features).features(outputs))
    assert_equal_but_for_rounding(chosen, expected(array(outputs["embedding_output"]), layers), depth_of(TINY, T))


@pytest.mark.parametrize(
    ("features", "first"), [("weighted_sum_last_four", 2), ("weighted_sum_all", 1), ("scalar_mix", 0)]
)
def test_weights_are_the_softmax_of_the_scores(outputs, features, first):
    """Of `scalar_mix` also times gamma (arXiv 1802.05365, equation 1)."""
    reader = reader_of(features)
    layers = [array(output) for output in (outputs["embedding_output"], *outputs["encoder_outputs"])][first:]
    mix = reader.layer_mix
    if features == "scalar_mix":
        mix.gamma.assign(3.0)
    mix.layer_scores.assign(np.log(np.arange(1.0, len(layers) + 1)))
    weights = np.arange(1, len(layers) + 1) / sum(range(1, len(layers) + 1))
    expected = sum(w * layer for w, layer in zip(weights, layers, strict=True)) * (3 if features == "scalar_mix" else 1)
    assert_equal_but_for_rounding(array(reader.features(outputs)), expected, depth_of(TINY, T))


@pytest.mark.parametrize("features", ["last", "sum_all", "weighted_sum_all", "concat_last_four", "scalar_mix"])
def test_gradients_reach_all_but_the_encoder(features):
    model, x = create(features), inputs()
    with tf.GradientTape() as tape:
        loss = loss_of(TAGS, model(x, training=True), token_labels=np.arange(B * T).reshape(B, T) % LABELS)
    gradients = tape.gradient(loss, [v.value for v in model.weights])
    trained = {v.path for v in model.trainable_variables}
    for variable, gradient in zip(model.weights, gradients, strict=True):
        in_encoder = "/bert/" in variable.path
        assert (gradient is None) == (in_encoder or "seed_generator" in variable.path), variable.path
        assert (variable.path in trained) == (gradient is not None)
        assert gradient is None or np.abs(array(gradient)).max() > 0
    assert len(trained) == 2 * 2 * 3 + 2 + {"w": 1, "scalar": 2}.get(features.split("_")[0].replace("weighted", "w"), 0)


def test_the_encoder_has_no_dropout_in_training():
    model, x = create(), inputs()
    assert TINY.hidden_dropout_prob > 0
    np.testing.assert_array_equal(array(model._sequence(x, True)), array(model._sequence(x, False)))


def test_both_directions_are_read_and_start_differently():
    model, x = create("embeddings"), inputs(padding=0)
    changed = {**x, "input_ids": x["input_ids"].copy()}
    changed["input_ids"][:, 2] = (changed["input_ids"][:, 2] + 1) % 40
    moved = (array(model(x)) != array(model(changed))).any(axis=(0, 2))
    assert moved.all()  # the positions before through the backward LSTM, those after through the forward one
    for lstm in model.reader.lstms:
        assert lstm.backward_layer.go_backwards and not lstm.forward_layer.go_backwards
        pairs = zip(lstm.forward_layer.get_weights()[:2], lstm.backward_layer.get_weights()[:2], strict=True)
        assert all((forward != backward).any() for forward, backward in pairs)


@pytest.mark.parametrize("features", ["first", "6", "-6", "--1", "²", "concat"])
def test_unknown_features_are_named(features):
    with pytest.raises(ValueError, match=f"features is {features!r}; it must be one of .*concat_last_four.*-5 to 5"):
        create(features)


def test_the_last_four_of_three_layers_is_an_error():
    with pytest.raises(ValueError, match="it needs 4 layers, and the encoder has 3"):
        BertForTokenClassification(BertConfig.size(3, 16), LABELS, features="sum_last_four")
