"""The model against an independent NumPy BERT, and the published parameter counts."""

import dataclasses
import json
import math
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models import layers
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining

SMALL = BertConfig(50, 64, 2, 2, 256, max_position_embeddings=16)


# Differences from the original's model, each alone and all of ModernBERT's together.
VARIATIONS = {
    "none": {},
    "rotary": {"position_embedding": "rotary"},
    "pre": {"norm_place": "pre"},
    "gated": {"gated_feed_forward": True},
    "no biases": {"use_bias": False},
    "local": {"local_attention": 4, "global_attn_every_n_layers": 2},
    "no segments": {"type_vocab_size": 0},
    "causal, local": {"causal": True, "local_attention": 4, "global_attn_every_n_layers": 1000},
}
MODERN = {
    **{name: value for change in VARIATIONS.values() for name, value in change.items() if name != "causal"},
    "num_hidden_layers": 5,
    "rotary_base": 160.0,
    "local_rotary_base": 10.0,
    "global_attn_every_n_layers": 3,
}


def random_model(config):
    model = BertForPreTraining(config, seed=3)
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
    """BERT and its variations, layer by layer, from the papers: one row and one head at a time."""
    w = {v.path.split("/", 1)[1]: np.asarray(v).astype("float64") for v in model.weights}
    config = model.config

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * w[f"{name}/gamma"] + w.get(f"{name}/beta", 0.0)

    def dense(x, name):
        return x @ w[f"{name}/kernel"] + w.get(f"{name}/bias", 0.0)

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def turned(x, base):
        """Pairs of coordinates as complex numbers, turned by an angle that grows with the position."""
        pairs = x[:, :16] + 1j * x[:, 16:]
        angles = np.arange(len(x))[:, None] / base ** (np.arange(16) / 16)
        return np.concatenate([(pairs * np.exp(1j * angles)).real, (pairs * np.exp(1j * angles)).imag], -1)

    def attention(x, mask, layer, at):
        is_local = config.local_attention and layer % config.global_attn_every_n_layers
        base = config.local_rotary_base if is_local else config.rotary_base
        heads = []
        for part in (slice(32), slice(32, 64)):
            q, k, v = (
                x @ w[f"{at}/{name}/kernel"] + w.get(f"{at}/{name}/bias", 0) for name in ("query", "key", "value")
            )
            q, k, v = q[:, part], k[:, part], v[:, part]
            if config.position_embedding == "rotary":
                q, k = turned(q, base), turned(k, base)
            context = []
            for i in range(len(x)):
                seen = [
                    j
                    for j in range(len(x))
                    if mask[j] and (not is_local or abs(i - j) <= 2) and (j <= i or not config.causal)
                ]
                # Nothing to see: every score is as low, so padding sees all tokens equally.
                seen = seen or range(len(x))
                scores = np.exp([q[i] @ k[j] / math.sqrt(32) for j in seen])
                context.append(scores / scores.sum() @ v[seen])
            heads.append(context)
        return dense(np.concatenate(heads, -1), f"{at}/output")

    def feed_forward(x, at):
        y = dense(x, f"{at}/intermediate")
        y = gelu(y[:, : y.shape[1] // 2]) * y[:, y.shape[1] // 2 :] if config.gated_feed_forward else gelu(y)
        return dense(y, f"{at}/output")

    table = w["bert/embeddings/word_embeddings/embeddings"]
    sequences, mlm, nsp = [], [], []
    for ids, mask, segments, positions in zip(*(inputs[k] for k in inputs), strict=True):
        x = table[ids]
        if config.position_embedding == "learned":
            x = x + w["bert/embeddings/position_embeddings/embeddings"][: len(ids)]
        if config.type_vocab_size:
            x = x + w["bert/embeddings/token_type_embeddings/embeddings"][segments]
        x = norm(x, "bert/embeddings/layer_norm")
        for layer in range(config.num_hidden_layers):
            at = f"bert/layer_{layer}"
            if config.norm_place == "pre":
                x = x + attention(norm(x, f"{at}/attention_layer_norm") if layer else x, mask, layer, f"{at}/attention")
                x = x + feed_forward(norm(x, f"{at}/output_layer_norm"), at)
            else:
                x = norm(x + attention(x, mask, layer, f"{at}/attention"), f"{at}/attention_layer_norm")
                x = norm(x + feed_forward(x, at), f"{at}/output_layer_norm")
        x = norm(x, "bert/final_layer_norm") if config.norm_place == "pre" else x
        sequences.append(x)
        h = norm(gelu(dense(x[positions], "predictions/transform")), "predictions/layer_norm")
        mlm.append(h @ table.T + w["predictions/output_bias"])
        pooled = x[mask.sum() - 1 if config.causal else 0]
        nsp.append(dense(np.tanh(dense(pooled, "bert/pooler")), "seq_relationship"))
    return np.array(sequences), np.array(mlm), np.array(nsp)


@pytest.mark.parametrize("change", [*VARIATIONS.values(), MODERN], ids=[*VARIATIONS, "all"])
def test_forward_equals_an_independent_bert(change):
    inputs, model = batch(), random_model(dataclasses.replace(SMALL, **change))
    outputs = model(inputs)
    real = inputs["input_mask"] == 1
    sequence, mlm, nsp = reference(model, inputs)
    np.testing.assert_allclose(outputs["sequence_output"][real], sequence[real], atol=2e-5)
    np.testing.assert_allclose(outputs["mlm_logits"], mlm, atol=2e-5)
    np.testing.assert_allclose(outputs["nsp_logits"], nsp, atol=2e-5)
    assert len(outputs["encoder_outputs"]) == model.config.num_hidden_layers  # without the embedding output
    np.testing.assert_array_equal(outputs["encoder_outputs"][-1], outputs["sequence_output"])
    tables = {path.split("/")[-2] for path in (v.path for v in model.backbone.embeddings.weights)}
    assert ("position_embeddings" in tables) == (model.config.position_embedding == "learned")
    if not model.config.use_bias:
        biases = [
            path.split("/", 1)[1] for path in (v.path for v in model.weights) if path.endswith(("/bias", "/beta"))
        ]
        assert biases == ["bert/pooler/bias", "seq_relationship/bias"]


# Lengths that end in a block's middle and at its end.
@pytest.mark.parametrize(("length", "causal"), [(10, True), (11, False), (12, True), (16, False)])
def test_windows_in_blocks_give_the_numbers_of_masked_ones(length, causal):
    """A served graph, which knows no length, masks all keys beyond the window."""
    backbone = random_model(dataclasses.replace(SMALL, **{**MODERN, "local_attention": 6}, causal=causal)).backbone
    ids = np.random.default_rng(0).integers(1, SMALL.vocab_size, (3, length))
    sequence = np.where(np.arange(length) < [[4], [3], [length]], 1, 2)
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids, "sequence_ids": sequence}
    inputs["input_mask"][0, length - 1] = 0
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    spec = {name: tf.TensorSpec([None, None], value.dtype) for name, value in inputs.items()}
    masked = tf.function(lambda x: backbone(x)["sequence_output"], [spec])
    real = inputs["input_mask"] == 1
    with mock.patch.object(layers, "in_blocks", wraps=layers.in_blocks) as cut:
        found = backbone(inputs)["sequence_output"]
    assert cut.call_count == 3 * 3  # query, key and value of three local layers
    np.testing.assert_allclose(found[real], masked(inputs)[real], rtol=0, atol=1e-6 * np.abs(found).max())


@pytest.mark.parametrize(("hidden_act", "written"), [("gelu_tanh", "gelu"), ("gelu_erf", "gelu_erf")])
def test_bert_config_json_round_trip(hidden_act, written):
    """The original's "gelu" is the tanh approximation; the exact function has a name that it refuses."""
    config = dataclasses.replace(SMALL, hidden_act=hidden_act, layer_norm_eps=1e-7)
    stored = json.loads(config.to_json())
    assert stored["hidden_act"] == written
    assert BertConfig.from_json(config.to_json()) == config
    assert BertConfig.from_json('{"pooler_type": "first_token_transform"}') == BertConfig()
    assert "norm_place" not in stored and "use_bias" not in stored  # bytes as before these fields
    modern = dataclasses.replace(config, **MODERN)
    assert BertConfig.from_json(modern.to_json()) == modern
    assert json.loads(modern.to_json())["norm_place"] == "pre"
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
        ({"norm_place": "middle"}, "model.norm_place is 'middle'; it must be post or pre"),
        ({"local_attention": 3}, "model.local_attention is 3; it must be even, at least 0"),
        ({"type_vocab_size": -1}, "model.type_vocab_size is -1; it must be at least 0"),
        ({"position_embedding": "rotary", "num_attention_heads": 256}, "in 256 heads; .*needs heads of an even width"),
    ],
)
def test_invalid_configurations_are_named(change, names):
    with pytest.raises(ValueError, match=names):
        BertConfig(**change)
