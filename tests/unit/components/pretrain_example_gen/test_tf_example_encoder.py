"""The encoding equals TensorFlow's own protocol buffers, byte for byte."""

import io

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bert_keras.data.tfrecord import read_records
from components.pretrain_example_gen.tf_example_encoder import encode_records


def encode_examples(features):
    """The examples without the framing of records."""
    return list(read_records(io.BytesIO(encode_records(features))))


def reference(features, row):
    example = tf.train.Example()
    for name, values in features.items():
        if np.issubdtype(values.dtype, np.floating):
            example.features.feature[name].float_list.value.extend(values[row].tolist())
        elif values.dtype.kind == "S":
            example.features.feature[name].bytes_list.value.extend(values[row].tolist())
        else:
            example.features.feature[name].int64_list.value.extend(values[row].tolist())
    return example.SerializeToString(deterministic=True)


@given(num_examples=st.integers(0, 4), data=st.data())
def test_bytes_equal_protocol_buffers(num_examples, data):
    def array(dtype, elements):
        width = data.draw(st.integers(1, 200))
        return data.draw(hnp.arrays(dtype, (num_examples, width), elements=elements))

    features = {
        "some_ids": array(np.int32, st.integers(0, 2**31 - 1)),
        "flags": array(np.uint8, st.integers(0, 255)),
        "longs": array(np.int64, st.integers(0, 2**63 - 1)),
        "text": np.full((num_examples, 1), data.draw(st.sampled_from([b"en", b"x" * 130]))),
        "a_float": array(np.float32, st.floats(width=32, allow_nan=False)),
    }
    assert encode_examples(features) == [reference(features, row) for row in range(num_examples)]


@pytest.mark.parametrize("largest", [127, 128, 16_383, 16_384, 2**20 - 1, 2**20, 2**21, 2**63 - 1])
def test_values_at_the_limits_of_varint_sizes(largest):
    """Up to 20 bits they are looked up, beyond that they are computed."""
    features = {"ids": np.array([[largest, 0, 1], [127, 128, 5]])}
    assert encode_examples(features) == [reference(features, row) for row in range(2)]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"ids": np.array([[1, -2]])}, "'ids' holds -2"),
        ({"ids": np.array([1, 2])}, r"'ids' has shape \(2,\)"),
        ({"ids": np.array([["a"]])}, "'ids' is of type"),
        ({"ids": np.array([[b"a", b"b"]])}, "'ids' is of type"),
        ({"ids": np.zeros((2, 1), int), "labels": np.zeros((3, 1), int)}, "'labels' has 3 rows"),
    ],
)
def test_invalid_features_are_reported_by_name(features, message):
    with pytest.raises(ValueError, match=message):
        encode_examples(features)
