"""TFRecords and tf.Examples made without TensorFlow equal TensorFlow's."""

import io
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.tfrecord import Example, bytes_example, frame, read_records


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_files_equal_tensorflows(tmp_path_factory, records):
    path = str(tmp_path_factory.mktemp("records") / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    content = Path(path).read_bytes()
    assert b"".join(map(frame, records)) == content
    assert list(read_records(io.BytesIO(content))) == records


@given(st.dictionaries(st.text(max_size=5), st.lists(st.binary(max_size=9), max_size=3), max_size=4))
def test_examples_equal_tensorflows(features):
    serialized = bytes_example(features)
    example = tf.train.Example.FromString(serialized)
    assert {k: list(v.bytes_list.value) for k, v in example.features.feature.items()} == features
    assert example.SerializeToString(deterministic=True) == serialized


def test_every_type_of_feature_is_read():
    feature = {
        "b": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x"])),
        "f": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, -1.0])),
        "i": tf.train.Feature(int64_list=tf.train.Int64List(value=[-(2**63), 7])),
    }
    serialized = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    read = Example.FromString(serialized).features.feature
    assert list(read["b"].bytes_list.value) == [b"x"]
    assert list(read["f"].float_list.value) == [0.5, -1.0]
    assert list(read["i"].int64_list.value) == [-(2**63), 7]
    assert read["i"].WhichOneof("kind") == "int64_list"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "record 1: is cut off"),
        (lambda data: data[:-10], "record 1: is cut off"),
        (lambda data: data[:21], "record 1: its length is damaged"),
        (lambda data: data[:-5] + b"?" + data[-4:], "record 1: is damaged"),
        (lambda data: b"?" + data[1:], "record 0: its length is damaged"),
    ],
)
def test_damaged_records_are_detected(damage, message):
    data = frame(b"one") + frame(b"the second")
    with pytest.raises(ValueError, match=message):
        list(read_records(io.BytesIO(damage(data))))
