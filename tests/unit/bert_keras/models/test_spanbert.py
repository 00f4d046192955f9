"""SpanBERT's span boundary objective."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.models.config import BertConfig
from bert_keras.models.spanbert import POSITION_EMBEDDING_SIZE, SpanBertForPreTraining, span_boundaries
from bert_keras.objectives.span_boundary import OBJECTIVE, example_sums
from tests.support.models.masked_sentences import spans
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.support.models.tiny_language import summed
from tests.support.models.whole_loss import whole

V, T, P = 30, 12, 6
TINY = BertConfig(V, 32, 2, 2, 64, max_position_embeddings=T)
HEAD_DEPTH = 2 * 32 + 200 + 4 * 32  # two dense layers, two norms, decoder
DEPTH = depth_of(TINY, T) + HEAD_DEPTH
SPANBERT = functools.partial(SpanBertForPreTraining, max_pair_targets=20)


def masked(rows, slots=P, length=T):
    """Features of rows such as "cttMMMts cMs": c = [CLS], t = token, s = [SEP], M = masked; blanks between packed
    sequences do not count."""
    features = {
        name: np.zeros((len(rows), width), np.int32)
        for name, width in {
            **dict.fromkeys(("input_ids", "input_mask", "segment_ids", "sequence_ids", "position_ids"), length),
            **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), slots),
        }.items()
    }
    features["masked_lm_weights"] = np.zeros((len(rows), slots), np.float32)
    rng = np.random.default_rng(0)
    for row, text in enumerate(rows):
        at = slot = 0
        for number, sequence in enumerate(text.split()):
            for place, kind in enumerate(sequence):
                ids = {"c": 2, "s": 3, "M": 4, "t": rng.integers(5, V)}
                for name, value in (
                    ("input_ids", ids[kind]),
                    ("input_mask", 1),
                    ("sequence_ids", number + 1),
                    ("position_ids", place),
                ):
                    features[name][row, at] = value
                if kind == "M":
                    features["masked_lm_positions"][row, slot] = at
                    features["masked_lm_ids"][row, slot] = rng.integers(5, V)
                    features["masked_lm_weights"][row, slot] = 1.0
                    slot += 1
                at += 1
    if not any(" " in text for text in rows):
        del features["sequence_ids"], features["position_ids"]
    return features


def found(features, max_pair_targets=20):
    """Of each row, (left, right, place) of the tokens that are predicted, None for those that are not."""
    left, right, places, weights = (np.asarray(x) for x in span_boundaries(features, max_pair_targets))
    assert (left >= 0).all() and (right < features["input_mask"].shape[1]).all()
    assert (left <= right).all() and (places >= 0).all() and (places < max_pair_targets).all()
    is_masked = features["masked_lm_weights"] > 0
    assert not weights[~is_masked].any()
    values = np.stack([left, right, places], -1)
    return [
        [tuple(map(int, v)) if w else None for v, w, m in zip(*rows, strict=True) if m]
        for rows in zip(values, weights, is_masked, strict=True)
    ]


def test_boundaries_and_places_by_hand():
    features = masked(["cttMMMttMts", "ctMts", "cttttts", "cttMMtMMts"])
    assert found(features) == [
        [(2, 6, 0), (2, 6, 1), (2, 6, 2), (7, 9, 0)],
        [(1, 3, 0)],
        [],
        [(2, 5, 0), (2, 5, 1), (5, 8, 0), (5, 8, 1)],
    ]


def test_only_when_both_boundaries_are_inside():
    """The original masks a text before it puts [CLS] and [SEP] around it."""
    assert found(masked(["cMtts", "ctMMs", "cMMMMs", "cMs", "ctMtM", "MMtts"])) == [
        [None], [None, None], [None] * 4, [None], [(1, 3, 0), None], [None, None]
    ]  # fmt: skip


def test_no_span_goes_from_one_sequence_of_a_row_into_the_next():
    """Where [SEP] and [CLS] are masked too, as in RoBERTa."""
    assert found(masked(["ctMts ctMts"])) == [[(1, 3, 0), (6, 8, 0)]]
    assert found(masked(["ctM MMtts"])) == [[None, None, None]]


def brute_force(text, max_pair_targets):
    """Each sequence cut at what is not masked; the first and the last token of it are no text."""
    expected, begin = [], 0
    for sequence in text.split():
        at = 0
        while at < len(sequence):
            end = at
            while end < len(sequence) and sequence[end] == "M":
                end += 1
            inside = at - 1 >= 1 and end <= len(sequence) - 2
            for place in range(end - at):
                predicted = inside and place < max_pair_targets
                expected.append((begin + at - 1, begin + end, place) if predicted else None)
            at = end + 1
        begin += len(sequence)
    return expected


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.lists(st.text("tM", max_size=6).map("c{}s".format), max_size=3).map(" ".join), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_boundaries_equal_brute_force(rows, max_pair_targets):
    features = masked(rows, slots=18, length=26)
    assert found(features, max_pair_targets) == [brute_force(text, max_pair_targets) for text in rows]


def test_masked_examples_have_valid_spans():
    """Spans of `bert_keras.data.masking`: boundaries are never masked, and spans are longer than a token."""
    features, _ = spans()
    boundaries = span_boundaries(features, 20)
    left, right, places, weights = (np.asarray(x) for x in boundaries)
    for row, positions in enumerate(features["masked_lm_positions"]):
        real = features["masked_lm_weights"][row] > 0
        for boundary in (left, right):
            predicted = weights[row] > 0
            assert not set(boundary[row][predicted]) & set(positions[real])
            assert not set(features["input_ids"][row, boundary[row][predicted]]) & {2}
    assert places.max() > 1 and 0 < weights.sum() < features["masked_lm_weights"].sum()


def test_head_equals_numpy(random_bert):
    """Concatenation (left, right, place), twice dense, gelu and layer norm, tied decoder and a bias of its own."""
    model = random_bert(TINY, SPANBERT)
    features = masked(["cttMMMttMts", "ctMMts"])
    outputs = model(features)
    w = {v.path.split("pair_target_predictions/")[-1]: np.asarray(v).astype(float) for v in model.weights}
    table = np.asarray(model.backbone.embeddings.word_embeddings.embeddings)
    x = np.asarray(outputs["sequence_output"])
    for row, slot, left, right, place in ((0, 0, 2, 6, 0), (0, 2, 2, 6, 2), (0, 3, 7, 9, 0), (1, 1, 1, 4, 1)):
        h = np.concatenate([x[row, left], x[row, right], w["position_embeddings/embeddings"][place]])
        assert len(h) == 2 * 32 + 200
        for layer in (1, 2):
            h = h @ w[f"transform_{layer}/kernel"] + w[f"transform_{layer}/bias"]
            h = 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
            h = (h - h.mean()) / np.sqrt(h.var() + 1e-12) * w[f"layer_norm_{layer}/gamma"] + w[
                f"layer_norm_{layer}/beta"
            ]
        assert_equal_but_for_rounding(outputs["sbo_logits"][row, slot], h @ table.T + w["output_bias"], HEAD_DEPTH)
    assert (w["output_bias"] != np.asarray(model.mlm_head.output_bias)).any()
    np.testing.assert_array_equal(outputs["sbo_weights"], [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]])
    assert POSITION_EMBEDDING_SIZE == 200 and w["position_embeddings/embeddings"].shape == (20, 200)


def test_sums_by_hand():
    """V = 2. Three masked tokens: MLM p = 3/4, 1/2 (tie: arg max 0, a miss), 1/5; the boundaries predict the last."""
    log = math.log
    outputs = {
        "mlm_logits": np.array([[[0, log(3)], [0, 0], [log(4), 0], [9, 0]]], "float32"),
        "sbo_logits": np.array([[[9, 0], [9, 0], [0, log(9)], [9, 0]]], "float32"),
        "sbo_weights": np.array([[0, 0, 1, 0]], "float32"),
    }
    labels = {"masked_lm_ids": np.array([[1, 1, 1, 0]]), "masked_lm_weights": np.array([[1, 1, 1, 0]], "float32")}
    sums = {k: np.asarray(v) for k, v in example_sums(outputs, labels).items()}
    assert tuple(sums) == OBJECTIVE.sums
    mlm, sbo = -log(3 / 4) - log(1 / 2) - log(1 / 5), -log(9 / 10)
    assert_equal_but_for_rounding([sums["mlm_nll"][0], sums["sbo_nll"][0]], [mlm, sbo], 5)
    assert [float(sums[name][0]) for name in ("mlm_correct", "mlm_weight", "sbo_correct", "sbo_weight")] == [1, 3, 1, 1]
    assert float(whole(OBJECTIVE.loss, summed(sums))) == pytest.approx(
        mlm / 3 + sbo / 2
    )  # the original divides by pairs + 1
    assert float(whole(OBJECTIVE.loss, dict.fromkeys(OBJECTIVE.sums, 0.0))) == 0.0
