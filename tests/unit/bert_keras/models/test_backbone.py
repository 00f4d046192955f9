"""The model against an independent NumPy BERT, and the published parameter counts."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest

from bert_keras.models import layers
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining

SMALL = BertConfig.size(2, 64, vocab_size=50, max_position_embeddings=16)


@pytest.fixture(scope="module")
def model():
    model = BertForPreTraining(SMALL, seed=3)
    model.build()
    # Zeros and ones would hide a bias or a scale that is not used.
    generator = np.random.default_rng(0)
    model.set_weights([w + generator.normal(0, 0.1, w.shape) for w in model.get_weights()])
    return model


def batch(rows=3, length=9, predictions=4):
    generator = np.random.default_rng(1)
    lengths = [length - 2 * row for row in range(rows)]
    mask = np.array([[1] * n + [0] * (length - n) for n in lengths])
    return {
        "input_ids": generator.integers(1, SMALL.vocab_size, (rows, length)) * mask,
        "input_mask": mask,
        "segment_ids": generator.integers(0, 2, (rows, length)) * mask,
        "masked_lm_positions": generator.integers(0, min(lengths), (rows, predictions)),
    }


def reference(model, inputs):
    """BERT, layer by layer, from the paper: one row and one head at a time."""
    w = {v.path.split("/", 1)[1]: np.asarray(v).astype("float64") for v in model.weights}

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def dense(x, name):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    table = w["bert/embeddings/word_embeddings/embeddings"]
    sequences, mlm, nsp = [], [], []
    for ids, mask, segments, positions in zip(*(inputs[k] for k in inputs), strict=True):
        x = table[ids] + w["bert/embeddings/position_embeddings/embeddings"][: len(ids)]
        x = norm(x + w["bert/embeddings/token_type_embeddings/embeddings"][segments], "bert/embeddings/layer_norm")
        for layer in range(SMALL.num_hidden_layers):
            at = f"bert/layer_{layer}"
            q, k, v = (dense(x, f"{at}/attention/{name}") for name in ("query", "key", "value"))
            heads = []
            for head in range(SMALL.num_attention_heads):
                part = slice(64 // SMALL.num_attention_heads * head, 64 // SMALL.num_attention_heads * (head + 1))
                scores = q[:, part] @ k[:, part].T / math.sqrt(64 // SMALL.num_attention_heads)
                scores = np.exp(scores - 10000.0 * (1 - mask))
                heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, part])
            attended = dense(np.concatenate(heads, -1), f"{at}/attention/output")
            x = norm(x + attended, f"{at}/attention_layer_norm")
            x = norm(x + dense(gelu(dense(x, f"{at}/intermediate")), f"{at}/output"), f"{at}/output_layer_norm")
        sequences.append(x)
        h = norm(gelu(dense(x[positions], "predictions/transform")), "predictions/layer_norm")
        mlm.append(h @ table.T + w["predictions/output_bias"])
        nsp.append(dense(np.tanh(dense(x[0], "bert/pooler")), "seq_relationship"))
    return np.array(sequences), np.array(mlm), np.array(nsp)


def test_forward_equals_an_independent_bert(model):
    inputs = batch()
    outputs = model(inputs)
    sequence, mlm, nsp = reference(model, inputs)
    np.testing.assert_allclose(outputs["sequence_output"], sequence, atol=2e-5)
    np.testing.assert_allclose(outputs["mlm_logits"], mlm, atol=2e-5)
    np.testing.assert_allclose(outputs["nsp_logits"], nsp, atol=2e-5)
    assert len(outputs["encoder_outputs"]) == SMALL.num_hidden_layers  # without the embedding output


def test_the_number_of_heads_matters():
    """A model of two heads of 32 is not one of one head of 64 (the reference above would not notice one head)."""
    two = BertConfig(50, 64, 1, 2, 256, max_position_embeddings=16)
    one = BertConfig(50, 64, 1, 1, 256, max_position_embeddings=16)
    outputs = []
    for config in (two, one):
        backbone = BertBackbone(config)
        backbone.build()
        backbone.set_weights([w * 20 for w in backbone.get_weights()])
        inputs = {k: v for k, v in batch().items() if k != "masked_lm_positions"}
        outputs.append(np.asarray(backbone(inputs)["sequence_output"]))
    assert np.abs(outputs[0] - outputs[1]).max() > 0.1


def test_padding_changes_nothing(model):
    short = batch(rows=1, length=7)
    padded = {k: np.pad(v, ((0, 0), (0, 5))) if k != "masked_lm_positions" else v for k, v in short.items()}
    np.testing.assert_allclose(model(padded)["mlm_logits"], model(short)["mlm_logits"], atol=1e-5)


def test_a_row_of_padding_is_finite(model):
    inputs = {k: np.zeros_like(v) for k, v in batch().items()}
    for name in ("sequence_output", "pooled_output", "mlm_logits", "nsp_logits"):
        assert np.isfinite(np.asarray(model(inputs)[name])).all()


def test_initial_deviation_is_that_of_the_cut_normal():
    weights = np.asarray(layers.initializer(BertConfig(), 1)((500, 500)))
    assert abs(weights.std() - 0.01759) < 1e-4
    assert np.abs(weights).max() <= 0.04


def test_gelu_is_the_tanh_approximation():
    exact = 0.5 * 2.7 * (1 + math.erf(2.7 / math.sqrt(2)))
    assert abs(float(layers.gelu(keras.ops.convert_to_tensor(2.7))) - exact) == pytest.approx(4.73e-4, rel=0.01)


def test_the_exact_gelu_is_a_setting():
    config = dataclasses.replace(SMALL, hidden_act="gelu_erf")
    exact = 0.5 * 2.7 * (1 + math.erf(2.7 / math.sqrt(2)))
    model = BertForPreTraining(config)
    for dense in (*(layer.intermediate for layer in model.backbone.encoder_layers), model.mlm_head.dense):
        assert float(dense.activation(keras.ops.convert_to_tensor(2.7))) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("hidden_act", "written"), [("gelu_tanh", "gelu"), ("gelu_erf", "gelu_erf")])
def test_bert_config_json_round_trip(hidden_act, written):
    """The original's "gelu" is the tanh approximation; the exact function has a name that it refuses."""
    config = dataclasses.replace(SMALL, hidden_act=hidden_act, layer_norm_eps=1e-7)
    stored = json.loads(config.to_json())
    assert stored["hidden_act"] == written
    assert BertConfig.from_json(config.to_json()) == config
    assert BertConfig.from_json('{"pooler_type": "first_token_transform"}') == BertConfig()
    with pytest.raises(ValueError, match="hidden_act is 'tanh'; it must be one of gelu, gelu_erf"):
        BertConfig.from_json('{"hidden_act": "tanh"}')


def test_the_seed_determines_the_weights_and_layers_differ():
    def weights(seed):
        model = BertForPreTraining(SMALL, seed=seed)
        model.build()
        return {v.path.split("/", 1)[1]: np.asarray(v) for v in model.weights if "kernel" in v.path}

    first, same, other = weights(1), weights(1), weights(2)
    name = "bert/layer_0/attention/query/kernel"
    np.testing.assert_array_equal(first[name], same[name])
    assert (first[name] != other[name]).any()
    square = [w for w in first.values() if w.shape == (64, 64)]
    assert len({w.tobytes() for w in square}) == len(square) == 2 * 4 + 2


def test_dropout_acts_in_training_only():
    model = BertForPreTraining(SMALL)
    model.build()
    still, again = (np.asarray(model(batch())["mlm_logits"]) for _ in range(2))
    moving = np.asarray(model(batch(), training=True)["mlm_logits"])
    np.testing.assert_array_equal(still, again)
    assert (moving != still).any()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"hidden_size": 65}, "model.hidden_size is 65, not a multiple of model.num_attention_heads, 12"),
        ({"vocab_size": 0}, "model.vocab_size is 0"),
        ({"hidden_dropout_prob": 1.0}, "model.hidden_dropout_prob is 1.0"),
        ({"hidden_act": "gelu"}, "model.hidden_act is 'gelu'; it must be gelu_tanh or gelu_erf"),
    ],
)
def test_invalid_configurations_are_named(change, names):
    with pytest.raises(ValueError, match=names):
        BertConfig(**change)
