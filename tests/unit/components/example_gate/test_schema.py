"""Real examples through TensorFlow Data Validation: what the curated schema lets pass, and what not."""

import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from bert_keras.features import feature_spec
from components.example_gate.schema import example_schema

T, P, V = 8, 2, 30
# [CLS] a [MASK] [SEP] b [SEP]; the greatest values allowed.
GOOD = {
    "input_ids": [2, 10, 4, 3, V - 1, 3, 0, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
    "masked_lm_positions": [2, T - 1],
    "masked_lm_ids": [V - 1, 0],
    "masked_lm_weights": [1.0, 0.0],
    "next_sentence_labels": [1],
}


def anomalies(*examples):
    """{feature: what is wrong with it} of a data set of these examples."""
    serialized = []
    for features in examples:
        example = tf.train.Example()
        for name, values in features.items():
            kind = "float_list" if isinstance(values[0], float) else "int64_list"
            getattr(example.features.feature[name], kind).value.extend(values)
        serialized.append(example.SerializeToString())
    statistics = generate_statistics_in_memory(ExamplesToRecordBatchDecoder().DecodeBatch(serialized))
    found = tfdv.validate_statistics(statistics, example_schema(T, P, V))
    return {name: info.short_description for name, info in found.anomaly_info.items()}


def test_it_names_the_features_of_the_format():
    schema = example_schema(T, P, V)
    declared = {f.name: [d.size for d in f.shape.dim] for f in schema.feature}
    assert declared == {name: list(spec.shape) for name, spec in feature_spec(T, P).items()}


def test_good_examples_pass():
    zeros = {name: [type(values[0])(0)] * len(values) for name, values in GOOD.items()}
    assert anomalies(GOOD, zeros) == {}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("input_ids", [V] + [0] * 7),
        ("input_ids", [-1] + [0] * 7),
        ("input_mask", [2] + [0] * 7),
        ("segment_ids", [2] + [0] * 7),
        ("masked_lm_positions", [T, 0]),
        ("masked_lm_ids", [V, 0]),
        ("masked_lm_weights", [1.5, 0.0]),
        ("masked_lm_weights", [-0.5, 0.0]),
        ("masked_lm_weights", [float("nan"), 0.0]),
        ("next_sentence_labels", [2]),
    ],
)
def test_a_value_out_of_range(name, values):
    assert list(anomalies(GOOD, {**GOOD, name: values})) == [name]


@pytest.mark.parametrize("name", GOOD)
def test_a_feature_that_is_missing(name):
    bad = {key: values for key, values in GOOD.items() if key != name}
    assert name in anomalies(GOOD, bad)
    assert name in anomalies(bad, bad)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("length", ["one more", "one less"])
def test_a_wrong_length(name, length):
    values = GOOD[name] + GOOD[name][:1] if length == "one more" else GOOD[name][:-1]
    bad = {**GOOD, name: values}
    if not values:
        del bad[name]
    assert name in anomalies(GOOD, bad)
    assert name in anomalies(bad, bad)


@pytest.mark.parametrize(("name", "values"), [("input_ids", [0.5] * T), ("masked_lm_weights", [1, 0])])
def test_a_wrong_type(name, values):
    assert list(anomalies({**GOOD, name: values})) == [name]


def test_a_feature_too_many():
    assert list(anomalies({**GOOD, "extra": [1]})) == ["extra"]
