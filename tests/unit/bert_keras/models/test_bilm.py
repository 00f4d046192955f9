"""The biLM compared with NumPy, its losses, and the visible side of each direction."""

import dataclasses
import math

import numpy as np
import pytest

from bert_keras.errors import InputError
from bert_keras.models.bilm import BiLM, characters_of
from bert_keras.models.config import BertConfig
from bert_keras.objectives.next_token import BIDIRECTIONAL_OBJECTIVE, bidirectional_sums
from tests.support.models.rounding import assert_equal_but_for_rounding
from tests.support.models.tiny_language import summed
from tests.support.models.whole_loss import whole

V, T = 30, 9
TINY = BertConfig(V, 24, 2, 1, 20, max_position_embeddings=T, encoder="bilm")
# Gates of every step of both layers, their projections, the highway layers and the softmax.
DEPTH = 2 * (T * (12 + 20) + 20) + 2 * 64 + 12
VOCABULARY = ["[PAD]", "##er", "é", "a" * 60, *(f"word{n}" for n in range(V - 4))]


@pytest.fixture(scope="module")
def model(random_bert):
    model = random_bert(TINY, BiLM)
    model.backbone.embeddings.characters.assign(characters_of(VOCABULARY))
    return model


def rows(lengths, seed=0):
    mask = (np.arange(T) < np.array(lengths)[:, None]).astype(np.int32)
    return {"input_ids": np.random.default_rng(seed).integers(5, V, mask.shape) * mask, "input_mask": mask}


def test_the_characters_of_a_token_are_its_bytes_between_marks():
    table = characters_of(VOCABULARY)
    assert table.shape == (V, 50) and table.max() == 260  # padding
    assert table[1, :7].tolist() == [258, *b"##er", 259, 260]
    assert table[2, :5].tolist() == [258, 0xC3, 0xA9, 259, 260]
    assert table[3].tolist() == [258, *b"a" * 48, 259]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def token_vectors(w):
    """Of every token, float64 [V, 12]: widths 1 to 7, of which the longest has 32 filters; highways; projection."""
    at = "bilm/embeddings"
    characters = w[f"{at}/characters/embeddings"][characters_of(VOCABULARY)]  # [V, 50, 16]
    pooled, biases = [], np.split(w[f"{at}/filter_bias"], np.cumsum((1, 1, 2, 4, 8, 16)))
    for width, count in enumerate((1, 1, 2, 4, 8, 16, 32), 1):
        kernel = w[f"{at}/width_{width}"]
        assert kernel.shape == (width, 16, count)
        windows = np.stack([characters[:, i : i + 51 - width] for i in range(width)], 2)  # [V, places, width, 16]
        pooled.append(np.maximum(np.einsum("vpwc,wcf->vpf", windows, kernel) + biases[width - 1], 0).max(1))
    x = np.concatenate(pooled, -1)
    for number in (0, 1):
        new, gate = (x @ w[f"{at}/{n}_{number}/kernel"] + w[f"{at}/{n}_{number}/bias"] for n in ("transform", "gate"))
        gate = sigmoid(gate)
        x = gate * np.maximum(new, 0) + (1 - gate) * x
    return x @ w[f"{at}/projection/kernel"] + w[f"{at}/projection/bias"]


def lstm(x, w, at):
    """TensorFlow 1's LSTMCell with a projection, forget bias 1 and both clips at 3; x [T, 12]."""
    output, state, outputs = np.zeros(12), np.zeros(20), []
    for row in x:
        gates = row @ w[f"{at}/gates/kernel"] + w[f"{at}/gates/bias"]
        entry, forget, new, out = np.split(gates + output @ w[f"{at}/steps/cell/recurrent/kernel"], 4)
        state = np.clip(sigmoid(forget + 1) * state + sigmoid(entry) * np.tanh(new), -3, 3)
        output = np.clip(sigmoid(out) * np.tanh(state) @ w[f"{at}/steps/cell/projection/kernel"], -3, 3)
        outputs.append(output)
    return np.array(outputs)


def test_bilm_equals_numpy(model):
    """Two layers a direction; the second adds its input; the softmax is common."""
    features = rows([9, 4, 1])
    found = model(features)
    w = {v.path.split("/", 1)[1]: np.asarray(v).astype(float) for v in model.weights}
    # Each layer has a path of its own: in Keras' names both directions have a layer_0.
    for number, layers in enumerate(model.backbone.directions):
        for layer in layers:
            names = {v.path.split(f"/{layer.name}/", 1)[1]: np.asarray(v).astype(float) for v in layer.weights}
            w |= {f"{number}/{layer.name}/{name}": value for name, value in names.items()}
    table = token_vectors(w)
    for row, length in enumerate(features["input_mask"].sum(1)):
        layers = {}
        for number, (direction, step) in enumerate((("forward", 1), ("backward", -1))):
            x = table[features["input_ids"][row, :length]][::step]
            layers[direction] = [x[::step]]
            for layer in (0, 1):
                y = lstm(x, w, f"{number}/layer_{layer}")
                x = x + y if layer else y
                layers[direction].append(x[::step])
            logits = np.asarray(found[f"{direction}_lm_logits"])[row, :length]
            expected = x[::step] @ w["predictions/kernel"] + w["predictions/bias"]
            assert_equal_but_for_rounding(logits, expected, DEPTH)
        outputs = [found["embedding_output"], *found["encoder_outputs"]]
        assert len(outputs) == 3
        both = [np.concatenate([layers["forward"][i], layers["backward"][i]], -1) for i in range(3)]
        for output, expected in zip(outputs, both, strict=True):
            assert_equal_but_for_rounding(np.asarray(output)[row, :length], expected, DEPTH)
        assert_equal_but_for_rounding(np.asarray(found["sequence_output"])[row, :length], sum(both) / 3, DEPTH)


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
            layers = zip(before["encoder_outputs"], after["encoder_outputs"], strict=True)
            pairs += [(old[:, :, hidden], new[:, :, hidden]) for old, new in layers]
            for old, new in pairs:
                is_token = features["input_mask"][:, blind] == 1
                np.testing.assert_array_equal(old.numpy()[:, blind][is_token], new.numpy()[:, blind][is_token])
                assert np.abs(old - new)[0, at].max() > 1e-3


def test_sums_by_hand():
    """V = 2. "0 1" and a pad: forward p(1) = 3/4 at 0; backward p(0) = 1/5 at 1."""
    log = math.log
    outputs = {
        "forward_lm_logits": np.array([[[0, log(3)], [9, 0], [9, 0]]], "float32"),
        "backward_lm_logits": np.array([[[9, 0], [0, log(4)], [9, 0]]], "float32"),
    }
    labels = {"input_ids": np.array([[0, 1, 0]]), "input_mask": np.array([[1, 1, 0]])}
    sums = {k: np.asarray(v) for k, v in bidirectional_sums(outputs, labels).items()}
    assert tuple(sums) == BIDIRECTIONAL_OBJECTIVE.sums
    expected = {"lm_nll": (-log(3 / 4), -log(1 / 5)), "lm_correct": (1, 0), "lm_weight": (1, 1)}
    for name, (forward, backward) in expected.items():
        assert_equal_but_for_rounding(sums[f"forward_{name}"], [forward], 4)
        assert_equal_but_for_rounding(sums[f"backward_{name}"], [backward], 4)
    assert float(whole(BIDIRECTIONAL_OBJECTIVE.loss, summed(sums))) == pytest.approx((-log(3 / 4) - log(1 / 5)) / 2)


def test_the_seed_determines_the_weights_and_layers_differ():
    def kernels(seed):
        model = BiLM(dataclasses.replace(TINY, hidden_size=16), seed=seed)
        model.build()
        return [np.asarray(v) for v in model.trainable_variables if "bias" not in v.path]

    first, again, other = kernels(1), kernels(1), kernels(2)
    for ours, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, same)
    assert not any((ours == theirs).all() for ours, theirs in zip(first, other, strict=True))
    assert len({w.tobytes() for w in first}) == len(first) == 1 + 7 + 2 * 2 + 1 + 2 * 2 * 3 + 1


def test_packed_rows_and_odd_widths_are_refused(model):
    features = rows([9])
    with pytest.raises(InputError, match=r"examples\.packing=false"):
        model({**features, "sequence_ids": features["input_mask"]})
    with pytest.raises(ValueError, match=r"model\.hidden_size is 25; a biLM's is even"):
        dataclasses.replace(TINY, hidden_size=25)
