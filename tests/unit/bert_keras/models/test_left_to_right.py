"""The causal model, its loss and the BiLSTM on top (paper, section 5.1)."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.left_to_right import BiLSTM, GptBert, LeftToRightLM
from bert_keras.objectives import gpt_bert, mlm
from bert_keras.objectives.next_token import OBJECTIVE, example_sums, next_tokens
from tests.support.models.model_folders import write_huggingface, write_tf1
from tests.support.models.tiny_language import summed
from tests.support.models.whole_loss import whole

V, T = 40, 12
TINY = BertConfig(V, 32, 2, 2, 64, max_position_embeddings=T, causal=True)
BOTH_WAYS = dataclasses.replace(TINY, causal=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(TINY, LeftToRightLM)


def masked(features):
    """The rows with their tokens 1 and 3 masked, of the second row only token 1."""
    ids, at = features["input_ids"].copy(), np.tile([1, 3], (len(features["input_ids"]), 1))
    weights = np.ones(at.shape, "float32")
    at[1, 1] = weights[1, 1] = 0
    labels = np.take_along_axis(ids, at, 1)
    np.put_along_axis(ids, at, np.where(weights > 0, 4, labels), 1)
    names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    return {**features, "input_ids": ids, **dict(zip(names, (at, labels, weights), strict=True))}


@pytest.mark.parametrize("lengths", [[[12], [9], [5], [8]], [[4, 5, 3], [7, 2], [12], [6, 6]]])
def test_a_gpt_bert_reads_every_second_row_from_left_to_right(random_bert, model, lengths):
    """With the numbers of the two models that it is, and the sums of their objectives."""
    both, text = random_bert(BOTH_WAYS, GptBert), rows(lengths)
    model.set_weights([*both.backbone.get_weights(), *both.mlm_head.get_weights()])
    batch = masked(text)
    found, bert = both(batch, training=True), both(batch)
    np.testing.assert_allclose(found["mlm_logits"], bert["mlm_logits"][::2], atol=2e-5)
    valid = text["input_mask"][1::2] > 0
    expected = np.asarray(model(text)["lm_logits"])[1::2]
    np.testing.assert_allclose(np.asarray(found["lm_logits"])[valid], expected[valid], atol=2e-5)
    assert np.abs(np.asarray(both(text, training=False)["mlm_logits"])[1::2][valid] - expected[valid]).max() > 0.1
    sums = {name: np.sum(value) for name, value in gpt_bert.example_sums(found, batch).items()}
    of_masked, of_next = mlm.example_sums(bert, batch), example_sums(model(text), text)
    np.testing.assert_allclose(sums["mlm_nll"], np.sum(np.asarray(of_masked["mlm_nll"])[::2]), rtol=1e-5)
    np.testing.assert_allclose(sums["lm_nll"], np.sum(np.asarray(of_next["lm_nll"])[1::2]), rtol=1e-5)
    (total,) = gpt_bert.totals(batch)
    assert total == sums["mlm_weight"] + sums["lm_weight"] == 4 + np.sum(np.asarray(of_next["lm_weight"])[1::2])


def rows(lengths, seed=0):
    """Rows of T tokens; `lengths` are of the sequences of each row: several are packed."""
    sequence, positions = np.zeros((2, len(lengths), T), int)
    for row, sizes in enumerate(lengths):
        sequence[row, : sum(sizes)] = np.repeat(np.arange(len(sizes)) + 1, sizes)
        positions[row, : sum(sizes)] = np.concatenate([np.arange(size) for size in [0, *sizes]])
    ids = np.random.default_rng(seed).integers(5, V, sequence.shape) * (sequence > 0)
    features = {"input_ids": ids, "input_mask": np.minimum(sequence, 1), "segment_ids": np.zeros_like(ids)}
    if max(map(len, lengths)) > 1:
        features |= {"sequence_ids": sequence, "position_ids": positions}
    return features


def outputs(model, features):
    found = model(features)
    return {name: np.asarray(found[name]) for name in ("sequence_output", "lm_logits")}


@pytest.mark.parametrize("lengths", [[[12], [9], [1]], [[4, 5, 3], [7, 2], [12]]])
def test_a_later_token_never_changes_an_earlier_output(model, lengths):
    features = rows(lengths)
    before = outputs(model, features)
    for at in range(T):
        changed = features["input_ids"].copy()
        changed[:, at] = (changed[:, at] + 7) % V
        after = outputs(model, {**features, "input_ids": changed})
        earlier = features["input_mask"][:, :at] == 1  # outputs at padding are arbitrary
        for name in before:
            np.testing.assert_array_equal(before[name][:, :at][earlier], after[name][:, :at][earlier])
            moved = np.abs(before[name] - after[name])[:, at:].max(axis=(1, 2))
            assert (moved[features["input_mask"][:, at] == 1] > 1e-3).all()


def test_a_packed_sequence_has_the_same_outputs_as_alone(model):
    packed = rows([[4, 5, 3]])
    found = outputs(model, packed)
    for start, end in ((0, 4), (4, 9), (9, 12)):
        names = ("input_ids", "input_mask", "segment_ids")
        alone = outputs(model, {name: packed[name][:, start:end] for name in names})
        for name in found:
            np.testing.assert_allclose(found[name][:, start:end], alone[name], atol=1e-5)


def test_the_pooler_takes_the_last_token(model):
    features = rows([[12], [5]])
    found = model.backbone(features)
    last = np.asarray(found["sequence_output"])[[0, 1], [11, 4]]
    np.testing.assert_allclose(found["pooled_output"], model.backbone.pooler(last), atol=1e-6)
    both_sides = BertBackbone(dataclasses.replace(TINY, causal=False))
    found = both_sides(features)
    np.testing.assert_allclose(found["pooled_output"], both_sides.pooler(found["sequence_output"][:, 0]), atol=1e-6)


def test_targets_of_each_token():
    """Two packed sequences 5 6 7 and 8 9, and a pad: no token predicts 8 or the pad."""
    features = {
        "input_ids": np.array([[5, 6, 7, 8, 9, 0]]),
        "input_mask": np.array([[1, 1, 1, 1, 1, 0]]),
        "sequence_ids": np.array([[1, 1, 1, 2, 2, 0]]),
    }
    ids, weights = next_tokens(features)
    np.testing.assert_array_equal(weights, [[1, 1, 0, 1, 0, 0]])
    np.testing.assert_array_equal(ids[weights == 1], [6, 7, 9])
    ids, weights = next_tokens(features, backward=True)
    np.testing.assert_array_equal(weights, [[0, 1, 1, 0, 1, 0]])
    np.testing.assert_array_equal(ids[weights == 1], [5, 6, 8])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(1, 5), max_size=3).filter(lambda row: sum(row) <= T), min_size=1, max_size=4))
def test_targets_are_those_of_each_sequence(lengths):
    features = rows(lengths)
    for backward in (False, True):
        ids, weights = (np.asarray(x) for x in next_tokens(features, backward))
        expected = []
        for row, sizes in enumerate(lengths):
            ends = np.cumsum(sizes)
            for start, end in zip(ends - sizes, ends, strict=True):
                pairs = zip(range(start, end - 1), range(start + 1, end), strict=True)
                expected += [(row, b, a) if backward else (row, a, b) for a, b in pairs]
        assert [tuple(place) for place in np.argwhere(weights)] == [(row, here) for row, here, _ in expected]
        assert list(ids[weights == 1]) == [features["input_ids"][row, there] for row, _, there in expected]


def test_sums_by_hand():
    """V = 2. "0 1 0" and a pad: p(1) = 3/4, hit; p(0) = 1/5, miss. Row 1: one token, which predicts nothing."""
    log = math.log
    logits = [[[0, log(3)], [0, log(4)], [9, 0], [9, 0]], [[9, 0]] * 4]
    labels = {
        "input_ids": np.array([[0, 1, 0, 0], [1, 0, 0, 0]]),
        "input_mask": np.array([[1, 1, 1, 0], [1, 0, 0, 0]]),
    }
    sums = {k: np.asarray(v) for k, v in example_sums({"lm_logits": np.array(logits, "float32")}, labels).items()}
    assert tuple(sums) == OBJECTIVE.sums
    np.testing.assert_allclose(sums["lm_nll"], [-log(3 / 4) - log(1 / 5), 0], rtol=1e-6)
    np.testing.assert_array_equal(sums["lm_correct"], [1, 0])
    np.testing.assert_array_equal(sums["lm_weight"], [2, 0])
    assert float(whole(OBJECTIVE.loss, summed(sums))) == pytest.approx((-log(3 / 4) - log(1 / 5)) / 2)
    assert float(whole(OBJECTIVE.loss, dict.fromkeys(OBJECTIVE.sums, 0.0))) == 0.0


def test_the_model_must_be_causal(random_bert, tmp_path):
    with pytest.raises(ValueError, match=r"model\.causal is False"):
        LeftToRightLM(dataclasses.replace(TINY, causal=False))
    for write in (write_huggingface, write_tf1):
        with pytest.raises(InputError, match=r"model\.causal is True"):
            write(random_bert(TINY, BertBackbone), None, str(tmp_path / "written"))
    assert not list(tmp_path.iterdir())


# The BiLSTM.


def lstm(x, kernel, recurrent, bias):
    """[T, H] -> [T, U], gates in Keras' order: input, forget, cell, output."""
    h = c = np.zeros(recurrent.shape[0])
    outputs = []
    for token in x:
        i, f, g, o = np.split(token @ kernel + h @ recurrent + bias, 4)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        outputs.append(h)
    return np.array(outputs)


def test_the_bilstm_reads_each_sequence_from_both_ends():
    bilstm = BiLSTM(6, seed=1)
    x = np.random.default_rng(0).normal(size=(3, 5, 6)).astype("float32")
    mask = np.array([[1] * 5, [1, 1, 1, 0, 0], [0] * 5])
    found = np.asarray(bilstm(x, mask))
    weights = [np.asarray(w).astype(float) for w in bilstm.get_weights()]
    assert not np.array_equal(weights[0], weights[3])
    for row, length in enumerate(mask.sum(1)):
        forward = lstm(x[row, :length], *weights[:3]) if length else np.zeros((0, 3))
        backward = lstm(x[row, :length][::-1], *weights[3:])[::-1] if length else np.zeros((0, 3))
        np.testing.assert_allclose(found[row, :length], np.concatenate([forward, backward], -1), atol=1e-5)
        assert not found[row, length:].any()
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = BiLSTM(6, seed=1)(x, mask)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    assert mixed.dtype == tf.bfloat16 and np.isfinite(np.asarray(mixed, "float32")).all()
    with pytest.raises(ValueError, match="hidden_size is 7"):
        BiLSTM(7)
