"""Metrics of the gate compared with calculations by hand, and slices of held-out examples by length."""

import math

import numpy as np
import pytest
import tensorflow_model_analysis as tfma

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_GROUPS, DOCUMENT_PARTS
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from components.evaluator.chance import ratio_of_groups
from components.evaluator.metrics import MlmAccuracy, MlmPerplexity, NspAccuracy
from components.evaluator.results import CHANCE, HIGH, LOW, OVER_CHANCE, slice_name
from components.evaluator.settings import SliceSettings, length_group
from components.evaluator.slices import AddLength

# Two batches, with two examples and with one: 8 predictions, 5 right, 8 ln 2 + 8 ln 5 nats; 3 pairs, 2 right.
BATCHES = [
    {
        "mlm_nll": [3 * math.log(2), 5 * math.log(2)],
        "mlm_correct": [2.0, 1.0],
        "mlm_weight": [3.0, 4.0],
        "nsp_correct": [1.0, 0.0],
        "nsp_weight": [1.0, 1.0],
    },
    {
        "mlm_nll": [8 * math.log(5)],
        "mlm_correct": [2.0],
        "mlm_weight": [1.0],
        "nsp_correct": [1.0],
        "nsp_weight": [1.0],
    },
]


def compute(metric, batches, model_name=""):
    """The metric without the bounds of its interval."""
    return compute_all(metric, batches, model_name)[0]


def compute_all(metric, batches, model_name="", chance=False, groups=None):
    """The metric with the bounds of its interval, from one accumulator per batch, merged as in Beam.

    Each row is a document, but for `groups`: the feature of the rows of all batches. With `chance` also the metric of
    the guesses, and the number of standard errors above it.
    """
    (computation,) = metric.computations(model_names=[model_name])
    combiner = computation.combiner
    accumulators, rows = [], 0
    for batch in batches:
        size = len(next(iter(batch.values())))
        numbers = (
            np.arange(rows, rows + size) * DOCUMENT_PARTS if groups is None else np.array(groups[rows : rows + size])
        )
        rows += size
        outputs = {name: np.array(values, np.float32) for name, values in batch.items()}
        predictions = {model_name: outputs} if model_name else outputs
        features = {DOCUMENT_GROUP: numbers[:, None]}
        inputs = tfma.metrics.StandardMetricInputs({tfma.PREDICTIONS_KEY: predictions, tfma.FEATURES_KEY: features})
        accumulators.append(combiner.add_input(combiner.create_accumulator(), inputs))
    found = combiner.extract_output(combiner.merge_accumulators(accumulators))
    assert [key.name for key in found] == [metric.name + end for end in ("", LOW, HIGH, CHANCE, OVER_CHANCE)]
    assert {key.model_name for key in found} == {model_name}
    return list(found.values())[: None if chance else 3]


@pytest.mark.parametrize("model_name", ["", "candidate"])
@pytest.mark.parametrize(
    ("metric", "name", "expected"),
    [
        (MlmAccuracy, "mlm_accuracy", 5 / 8),
        # exp((8 ln 2 + 8 ln 5) / 8) = 2 * 5: over all predictions, not the mean of the batches' perplexities.
        (MlmPerplexity, "mlm_perplexity", 10.0),
        (NspAccuracy, "nsp_accuracy", 2 / 3),
    ],
)
def test_metrics_equal_calculations_by_hand(metric, name, expected, model_name):
    assert metric().name == name
    assert compute(metric(), BATCHES, model_name) == pytest.approx(expected, rel=1e-6)


def test_the_interval_equals_a_calculation_by_hand():
    # One pair per document, so the error of 2 of 3 is the textbook's: sqrt(2/3 * 1/3 / (3 - 1)) = 1/3, times Student's
    # t of two degrees of freedom.
    assert compute_all(NspAccuracy(), BATCHES)[1:] == pytest.approx([0.0, 1.0])
    ten = {"nsp_correct": [1.0] * 8 + [0.0] * 2, "nsp_weight": [1.0] * 10}
    error = math.sqrt(0.8 * 0.2 / 9)
    assert compute_all(NspAccuracy(), [ten])[1] == pytest.approx(0.8 - 2.262157 * error)
    # 2, 1 and 2 of 3, 4 and 1 tokens are right, 5/8 of all. The residuals are 1/8, -12/8 and 11/8:
    # error sqrt(3/2 * 266/64 / 8^2) = 0.312109. It does not change if all rows stand three times in their documents.
    thrice = {name: np.repeat(np.concatenate([batch[name] for batch in BATCHES]), 3) for name in BATCHES[0]}
    groups = np.repeat([0, DOCUMENT_PARTS, 2 * DOCUMENT_PARTS], 3)
    for batches, of in ((BATCHES, None), ([thrice], groups)):
        assert compute_all(MlmAccuracy(), batches, groups=of)[1:] == pytest.approx([0.0, 1.0], abs=1e-6)
        # Losses 3, 5 (ln 2) and 8 (ln 5) of 3, 4 and 1 tokens, ln 10 each: residuals -4.828, -5.745 and 10.573.
        perplexity, _, high = compute_all(MlmPerplexity(), batches, groups=of)
        margin = 4.302653 * math.sqrt(1.5 * (4.828314**2 + 5.744604**2 + 10.572918**2)) / 8
        assert math.log(high / perplexity) == pytest.approx(margin, rel=1e-5)
    # For the perplexity it follows from the loss: no loss varies here, and for one row nothing is known.
    even = {"mlm_nll": [math.log(2), 3 * math.log(2)], "mlm_weight": [1.0, 3.0]}
    assert compute_all(MlmPerplexity(), [even]) == pytest.approx([2.0, 2.0, 2.0], rel=1e-6)
    one = {name: values[:1] for name, values in even.items()}
    assert [math.isnan(value) for value in compute_all(MlmPerplexity(), [one])] == [False, True, True]


def test_the_interval_has_95_percent_coverage():
    """400 samples of 40 documents of 1 to 8 rows; each has its own share of right tokens, 0.6 on average.

    Rows as the sampling unit hold the mean in 65 to 75 % of the samples.
    """
    generator, hits = np.random.default_rng(0), np.zeros(2)
    for _ in range(400):
        rows = generator.integers(1, 9, 40)
        share = np.repeat(generator.uniform(0.3, 0.9, 40), rows)
        weight = generator.integers(1, 20, rows.sum())
        batch = {"mlm_correct": generator.binomial(weight, share), "mlm_weight": weight}
        documents = np.repeat(np.arange(40), rows) * DOCUMENT_PARTS + generator.integers(
            DOCUMENT_PARTS, size=rows.sum()
        )
        for unit, groups in enumerate((documents, np.arange(rows.sum()) % DOCUMENT_GROUPS * DOCUMENT_PARTS)):
            _, low, high = compute_all(MlmAccuracy(), [batch], groups=groups)
            hits[unit] += low <= 0.6 <= high
    assert 0.92 < hits[0] / 400 < 0.975 and hits[1] / 400 < 0.85


def test_parts_of_few_documents_are_the_units():
    """Two documents in three and two parts; with five documents the parts are added up."""
    batch = {"nsp_correct": [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0], "nsp_weight": [1.0] * 8}
    two = [0, 0, 1, 2, 4, 4, 6, 6]
    parts = ratio_of_groups(np.array([1.0, 1.0, 1.0, 1.0, 1.0]), np.array([2.0, 1.0, 1.0, 2.0, 2.0]))
    _, low, _ = compute_all(NspAccuracy(), [batch], groups=two)
    assert low == pytest.approx(max(0.0, 5 / 8 - 2.776445 * parts[1]))
    five = [0, 1, 4, 5, 8, 12, 16, 17]
    documents = ratio_of_groups(np.array([1.0, 2.0, 0.0, 1.0, 1.0]), np.array([2.0, 2.0, 1.0, 1.0, 2.0]))
    _, low, _ = compute_all(NspAccuracy(), [batch], groups=five)
    assert low == pytest.approx(max(0.0, 5 / 8 - 2.776445 * documents[1]))


@pytest.mark.parametrize("metric", [MlmAccuracy, MlmPerplexity, NspAccuracy])
def test_metrics_without_weight_are_nan(metric):
    zeros = {name: [0.0] * len(values) for name, values in BATCHES[0].items()}
    assert math.isnan(compute(metric(), [zeros]))


def test_metrics_of_a_diverged_model():
    assert math.isnan(compute(MlmPerplexity(), [{**BATCHES[0], "mlm_nll": [math.nan, 1.0]}]))
    assert math.isfinite(compute(MlmPerplexity(), [{**BATCHES[0], "mlm_nll": [1e9, 1.0]}]))


@pytest.mark.parametrize("batches", [1, 3])
def test_sums_stay_exact(batches):
    # 2 ** 24 + 1 is not a float32; the second pair of three is right, the third is not.
    correct, weight = [2.0**24, 1.0, 0.0], [2.0**24, 1.0, 1.0]
    if batches == 1:
        rows = [{"nsp_correct": correct, "nsp_weight": weight}]
    else:
        rows = [{"nsp_correct": [c], "nsp_weight": [w]} for c, w in zip(correct, weight, strict=True)]
    assert compute(NspAccuracy(), rows) == (2**24 + 1) / (2**24 + 2)


def test_chance_equals_a_calculation_by_hand():
    """Always "next" is right for 2 of the three pairs of `BATCHES`, never for one: chance is 2/3, as is the model."""
    batches = [{**BATCHES[0], "nsp_correct_guessed": [[1.0, 0.0], [0.0, 1.0]]}]
    batches.append({**BATCHES[1], "nsp_correct_guessed": [[1.0, 0.0]]})
    assert compute_all(NspAccuracy(), batches, chance=True)[3:] == [pytest.approx(2 / 3), 0.0]
    # The model has 5 tokens of 8 right, the guess 1: 1/2 better, with 1, 1 and 2 more of 3, 4 and 1 tokens. The
    # residuals are -1/2, -1 and 3/2, error sqrt(3/2 * 7/2 / 8^2) = 0.286411.
    batches = [{**BATCHES[0], "mlm_correct_guessed": [[1.0], [0.0]]}, {**BATCHES[1], "mlm_correct_guessed": [[0.0]]}]
    assert compute_all(MlmAccuracy(), batches, chance=True)[3:] == pytest.approx([1 / 8, 0.5 / 0.286411], rel=1e-5)


def test_a_lower_loss_is_better_and_guesses_may_be_missing():
    """Loss ln 10 against ln 20: half the perplexity. The last blessed model may have no guesses."""
    weight = np.array([1.0, 2.0, 3.0])
    noise = np.array([0.1, -0.1, 0.1 / 3])
    batches = {"mlm_nll": weight * (math.log(10) + noise), "mlm_weight": weight}
    batches["mlm_nll_guessed"] = (weight * math.log(20))[:, None]
    perplexity, _, _, chance, over = compute_all(MlmPerplexity(), [batches], chance=True)
    assert [perplexity, chance] == pytest.approx([10.0, 20.0], rel=1e-6) and over > 2.0
    batches["mlm_nll_guessed"] = (weight * math.log(5))[:, None]
    assert compute_all(MlmPerplexity(), [batches], chance=True)[4] < -2.0
    assert [math.isnan(value) for value in compute_all(MlmPerplexity(), BATCHES, chance=True)[3:]] == [True, True]


GROUPS = SliceSettings((2, 4)).length_groups


def test_every_length_is_in_one_slice():
    assert GROUPS == ["up to 2", "3 to 4", "over 4"]
    assert [length_group(GROUPS, length) for length in (0, 2, 3, 4, 5, 999)] == [
        "up to 2", "up to 2", "3 to 4", "3 to 4", "over 4", "over 4",
    ]  # fmt: skip
    assert [length_group(["up to 7", "over 7"], length) for length in (7, 8)] == ["up to 7", "over 7"]
    assert SliceSettings(()).length_groups == []


@pytest.mark.parametrize("lengths", [(4, 2), (2, 2), (0, 2), (-1,)])
def test_lengths_must_increase(lengths):
    with pytest.raises(ValueError, match=r"slices\.lengths is .*above the one before"):
        SliceSettings(lengths)


def test_slice_names():
    assert slice_name(("gold", '"1"')) == ("label", "1")
    assert slice_name(("length", "3 to 4")) == ("length", "3 to 4")
    assert slice_name(("source", "news")) == ("source", "news")


@pytest.fixture
def model(tmp_path):
    """Folder of a model whose vocabulary has the letters a to e."""
    (tmp_path / "bert_config.json").write_text(BertConfig.size(1, 64, vocab_size=10).to_json())
    (tmp_path / "vocab_spec.json").write_text('{"algorithm": "wordpiece", "lower_case": true}')
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde"]) + "\n")
    return str(tmp_path)


def group(model, features):
    given = {tfma.FEATURES_KEY: features, "labels": None}
    (made,) = AddLength(GROUPS, model).process(given)
    assert given == {tfma.FEATURES_KEY: features, "labels": None} and set(made) == set(given)
    (found,) = made[tfma.FEATURES_KEY]["length"].tolist()
    return found.decode()


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"text": "A b"}, "up to 2"),
        ({"text": "a b", "text_pair": "c"}, "3 to 4"),
        ({"question": "a?", "context": "b, c"}, "over 4"),
        # The longest choice counts, not all together: 1 + 3.
        ({"text": "a", "choices": ["b", "c d e", "b"]}, "3 to 4"),
    ],
)
def test_length_of_task_rows_in_tokens(model, inputs, expected):
    """For all its texts, with the model's vocabulary, without [CLS] and [SEP]."""
    features = {name: np.array([t.encode() for t in np.ravel(texts)]) for name, texts in inputs.items()}
    assert group(model, {**features, "row_id": np.array([b"7"]), "gold": np.array([b'"1"'])}) == expected


def test_length_of_pre_training_examples_in_real_tokens():
    """Without a vocabulary, since there are no texts."""
    assert group("nowhere", {"input_ids": np.arange(6), "input_mask": np.array([1, 1, 1, 1, 0, 0])}) == "3 to 4"


def test_a_model_without_vocabulary_is_reported(model, tmp_path):
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(InputError):
        group(model, {"text": np.array([b"a"])})
