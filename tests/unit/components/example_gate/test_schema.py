"""The curated schema, applied to real examples by TensorFlow Data Validation."""

import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics.stats_impl import generate_statistics_in_memory
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from bert_keras.data.example_format import DOCUMENT_GROUP, SOURCE, ExampleLayout, feature_spec
from components.example_gate.schema import example_schema

T, P, V = 8, 2, 30
LAYOUT = ExampleLayout.bert(T, P)
# [CLS] a [MASK] [SEP] b [SEP]; the largest allowed values.
GOOD = {
    "input_ids": [2, 10, 4, 3, V - 1, 3, 0, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
    "masked_lm_positions": [2, T - 1],
    "masked_lm_ids": [V - 1, 0],
    "masked_lm_weights": [1.0, 0.0],
    "next_sentence_labels": [1],
}


def anomalies(*examples, layout=LAYOUT):
    """{feature: anomaly} of a data set of these examples."""
    serialized = []
    for features in examples:
        example = tf.train.Example()
        for name, values in features.items():
            kind = "float_list" if isinstance(values[0], float) else "int64_list"
            getattr(example.features.feature[name], kind).value.extend(values)
        serialized.append(example.SerializeToString())
    statistics = generate_statistics_in_memory(ExamplesToRecordBatchDecoder().DecodeBatch(serialized))
    found = tfdv.validate_statistics(statistics, example_schema(layout, V))
    return {name: info.short_description for name, info in found.anomaly_info.items()}


def test_the_schema_has_the_features_of_the_format():
    schema = example_schema(LAYOUT, V)
    declared = {f.name: [d.size for d in f.shape.dim] for f in schema.feature if f.name not in (DOCUMENT_GROUP, SOURCE)}
    assert declared == {name: list(spec.shape) for name, spec in feature_spec(LAYOUT, masked=True).items()}


def test_valid_examples_pass():
    zeros = {name: [type(values[0])(0)] * len(values) for name, values in GOOD.items()}
    assert anomalies(GOOD, zeros) == {}


# TFDV finds the anomalies of a feature by itself, so an example has a wrong value in each.
TOO_LARGE = {
    "input_ids": [V] + [0] * 7,
    "input_mask": [2] + [0] * 7,
    "segment_ids": [2] + [0] * 7,
    "masked_lm_positions": [T, 0],
    "masked_lm_ids": [V, 0],
    "masked_lm_weights": [1.5, 0.0],
    "next_sentence_labels": [2],
}
TOO_SMALL = {"input_ids": [-1] + [0] * 7, "masked_lm_weights": [-0.5, 0.0]}


@pytest.mark.parametrize("wrong", [TOO_LARGE, TOO_SMALL, {"masked_lm_weights": [float("nan"), 0.0]}])
def test_out_of_range_values_are_anomalies(wrong):
    assert anomalies(GOOD, {**GOOD, **wrong}).keys() == wrong.keys()


LONGER = {name: values + values[:1] for name, values in GOOD.items()}
SHORTER = {name: values[:-1] for name, values in GOOD.items() if len(values) > 1}


@pytest.mark.parametrize("bad", [{}, LONGER, SHORTER], ids=["missing", "one more", "one less"])
def test_missing_features_and_wrong_lengths_are_anomalies(bad):
    """In one example of two, and in all."""
    assert anomalies(GOOD, bad).keys() == anomalies(bad, bad).keys() == GOOD.keys()


@pytest.mark.parametrize(("name", "values"), [("input_ids", [0.5] * T), ("masked_lm_weights", [1, 0])])
def test_wrong_types_are_anomalies(name, values):
    assert list(anomalies({**GOOD, name: values})) == [name]


def test_additional_features_are_anomalies():
    assert list(anomalies({**GOOD, "extra": [1]})) == ["extra"]


@pytest.mark.parametrize("values", [[1024], [-1], [1, 2]])
def test_held_out_examples_have_a_group_of_documents(values):
    assert anomalies({**GOOD, DOCUMENT_GROUP: [1023]}, GOOD) == {}
    assert list(anomalies({**GOOD, DOCUMENT_GROUP: values})) == [DOCUMENT_GROUP]


PACKED = {
    **GOOD,
    "sequence_ids": [1, 1, 1, 1, 2, 2, 0, 0],
    "position_ids": [0, 1, 2, 3, 0, T - 1, 0, 0],
    "next_sentence_labels": [1, 0],
    "next_sentence_positions": [0, T - 1],
    "next_sentence_weights": [1.0, 1.0],
}
PACKED_LAYOUT = ExampleLayout("mlm_nsp", T, P, 2, "static")


PACKED_TOO_LARGE = {
    "sequence_ids": [3] + [0] * 7,
    "position_ids": [T] + [0] * 7,
    "next_sentence_labels": [2, 0],
    "next_sentence_positions": [0, T],
    "next_sentence_weights": [1.5, 0.0],
    "input_ids": [V] + [0] * 7,
}


@pytest.mark.parametrize("wrong", [{}, PACKED_TOO_LARGE, {"next_sentence_labels": [1]}])
def test_packed_examples(wrong):
    assert anomalies(PACKED, {**PACKED, **wrong}, layout=PACKED_LAYOUT).keys() == wrong.keys()


def test_dynamic_masking_allows_missing_masks():
    """They may be missing, but if present they are checked; other features must be present."""
    layout = ExampleLayout("mlm_nsp", T, P, 1, "dynamic")
    unmasked = {name: values for name, values in GOOD.items() if not name.startswith("masked_lm_")}
    assert anomalies(unmasked, layout=layout) == {} == anomalies(GOOD, layout=layout)
    assert list(anomalies({**GOOD, "masked_lm_ids": [V, 0]}, layout=layout)) == ["masked_lm_ids"]
    assert list(anomalies({**GOOD, "masked_lm_ids": [1]}, layout=layout)) == ["masked_lm_ids"]
    assert "input_mask" in anomalies({name: v for name, v in unmasked.items() if name != "input_mask"}, layout=layout)


def test_the_features_of_each_objective():
    for objective in ("segment_pair", "full_sentences", "doc_sentences", "single_sequence", "left_to_right"):
        layout = ExampleLayout(objective, T, P, 1, "static")
        names = {feature.name for feature in example_schema(layout, V).feature} - {DOCUMENT_GROUP, SOURCE}
        masked = objective != "left_to_right"
        assert names == {n for n in GOOD if n != "next_sentence_labels" and (masked or not n.startswith("masked"))}
