"""The biLM compared with NumPy, its losses, and the visible side of each direction."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.models.bilm import BiLM, BiLMConfig
from bert_keras.objectives.next_token import BIDIRECTIONAL_SUMS, bidirectional_loss, bidirectional_sums
from tests.support.models.rounding import assert_equal_but_for_rounding
from tests.support.models.tiny_language import least_loss, overfit, real_sequences, round_trip, summed
from tests.support.models.whole_loss import whole
from tests.unit.bert_keras.models.test_left_to_right import lstm

V, T = 30, 9
TINY = BiLMConfig(vocab_size=V, hidden_size=12, num_layers=2, lstm_size=20)
# Gates of every step of both layers, their projections, and the softmax.
DEPTH = 2 * (T * (12 + 20) + 20) + 12


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(TINY, BiLM)


def rows(lengths, seed=0):
    mask = (np.arange(T) < np.array(lengths)[:, None]).astype(np.int32)
    return {"input_ids": np.random.default_rng(seed).integers(5, V, mask.shape) * mask, "input_mask": mask}


def test_bilm_equals_numpy(model):
    """Two layers a direction, each projected; the second adds its input; softmax and embeddings are tied."""
    features = rows([9, 4, 1])
    found = model(features)
    w = {v.path.split("/", 1)[1]: np.asarray(v).astype(float) for v in model.weights}
    table = w["token_embeddings/embeddings"]
    for row, length in enumerate(features["input_mask"].sum(1)):
        layers = {}
        for direction, step in (("forward", 1), ("backward", -1)):
            x = table[features["input_ids"][row, :length]][::step]
            layers[direction] = [x[::step]]
            for layer in (0, 1):
                at = f"{direction}/lstm_{layer}/lstm_cell"
                y = lstm(x, w[f"{at}/kernel"], w[f"{at}/recurrent_kernel"], w[f"{at}/bias"])
                y = y @ w[f"{direction}/projection_{layer}/kernel"] + w[f"{direction}/projection_{layer}/bias"]
                x = x + y if layer else y
                layers[direction].append(x[::step])
            logits = np.asarray(found[f"{direction}_lm_logits"])[row, :length]
            assert_equal_but_for_rounding(logits, x[::step] @ table.T + w["output_bias"], DEPTH)
        assert len(found["layer_outputs"]) == 3
        for index, output in enumerate(found["layer_outputs"]):
            both = np.concatenate([layers["forward"][index], layers["backward"][index]], -1)
            assert_equal_but_for_rounding(np.asarray(output)[row, :length], both, DEPTH)


def test_each_direction_sees_only_its_side(model):
    features = rows([9, 5])
    before = model(features)
    for at in range(T):
        changed = features["input_ids"].copy()
        changed[:, at] = (changed[:, at] + 7) % V
        after = model({**features, "input_ids": changed})
        for direction, hidden in (("forward", slice(0, 12)), ("backward", slice(12, 24))):
            blind = slice(0, at) if direction == "forward" else slice(at + 1, T)
            pairs = [(before[f"{direction}_lm_logits"], after[f"{direction}_lm_logits"])]
            layers = zip(before["layer_outputs"], after["layer_outputs"], strict=True)
            pairs += [(old[:, :, hidden], new[:, :, hidden]) for old, new in layers]
            for old, new in pairs:
                is_token = features["input_mask"][:, blind] == 1
                np.testing.assert_array_equal(old.numpy()[:, blind][is_token], new.numpy()[:, blind][is_token])
                assert np.abs(old - new)[0, at].max() > 1e-3


def test_padding_changes_nothing(model):
    features = rows([5, 5])
    short = model({name: values[:, :5] for name, values in features.items()})
    for name in ("forward_lm_logits", "backward_lm_logits"):
        assert_equal_but_for_rounding(model(features)[name][:, :5], short[name], DEPTH)


def test_sums_by_hand():
    """V = 2. "0 1" and a pad: forward p(1) = 3/4 at 0; backward p(0) = 1/5 at 1."""
    log = math.log
    outputs = {
        "forward_lm_logits": np.array([[[0, log(3)], [9, 0], [9, 0]]], "float32"),
        "backward_lm_logits": np.array([[[9, 0], [0, log(4)], [9, 0]]], "float32"),
    }
    labels = {"input_ids": np.array([[0, 1, 0]]), "input_mask": np.array([[1, 1, 0]])}
    sums = {k: np.asarray(v) for k, v in bidirectional_sums(outputs, labels).items()}
    assert tuple(sums) == BIDIRECTIONAL_SUMS
    expected = {"lm_nll": (-log(3 / 4), -log(1 / 5)), "lm_correct": (1, 0), "lm_weight": (1, 1)}
    for name, (forward, backward) in expected.items():
        assert_equal_but_for_rounding(sums[f"forward_{name}"], [forward], 4)
        assert_equal_but_for_rounding(sums[f"backward_{name}"], [backward], 4)
    assert float(whole(bidirectional_loss, summed(sums))) == pytest.approx((-log(3 / 4) - log(1 / 5)) / 2)


def test_real_sentences_are_learned_by_heart():
    """Both directions, to the least loss that there is; see `least_loss`."""
    features, tokenizer = real_sequences()
    model = BiLM(BiLMConfig(len(tokenizer.vocabulary), 64, 1, 128, dropout_prob=0.0))
    overfit(model, features, lambda x: whole(bidirectional_loss, summed(bidirectional_sums(x, features))), 400, 1e-2)
    sums = summed(bidirectional_sums(model(features), features))
    least = least_loss(features)
    for direction in ("forward", "backward"):
        reached = float(sums[f"{direction}_lm_nll"] / sums[f"{direction}_lm_weight"])
        print(f"{direction}: reached {reached:.4f}, least {least:.4f}")
        assert least - 1e-4 < reached < least + 0.02


def test_config_and_keras_round_trip(model, tmp_path):
    ours, again, loaded = round_trip(model, rows([9, 5]), tmp_path)
    for name, values in ours.items():
        np.testing.assert_array_equal(values, again[name])
        np.testing.assert_array_equal(values, loaded[name])


def test_the_seed_determines_the_weights_and_layers_differ():
    def kernels(seed):
        model = BiLM(BiLMConfig(V, 8, 2, 8), seed=seed)
        model.build()
        return [np.asarray(v) for v in model.weights if "bias" not in v.path]

    first, again, other = kernels(1), kernels(1), kernels(2)
    for ours, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, same)
    assert not any((ours == theirs).all() for ours, theirs in zip(first, other, strict=True))
    assert len({w.tobytes() for w in first}) == len(first) == 1 + 2 * 2 * 3


@pytest.mark.parametrize("lengths", [[9, 3], [0], [4, 0]])
def test_bfloat16_and_padding_are_finite(lengths):
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        model = BiLM(TINY)
        found = model(rows(lengths), training=True)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    assert found["forward_lm_logits"].dtype == tf.bfloat16
    sums = bidirectional_sums(found, rows(lengths))
    values = [found["forward_lm_logits"], found["backward_lm_logits"], *found["layer_outputs"], *sums.values()]
    assert all(np.isfinite(np.asarray(value, "float32")).all() for value in values)


def test_one_sequence_of_one_token(model):
    features = {"input_ids": np.array([[7]]), "input_mask": np.array([[1]])}
    sums = summed(bidirectional_sums(model(features), features))
    assert {float(value) for value in sums.values()} == {0.0} == {float(whole(bidirectional_loss, sums))}


def test_packed_rows_and_invalid_sizes_are_refused(model):
    features = rows([9])
    with pytest.raises(InputError, match=r"examples\.packing=false"):
        model({**features, "sequence_ids": features["input_mask"]})
    for change, names in (({"num_layers": 0}, r"model\.num_layers is 0"), ({"dropout_prob": 1.0}, "dropout_prob is 1")):
        with pytest.raises(ValueError, match=names):
            BiLMConfig(**change)
