"""TensorProto conversion, compared with TensorFlow's own."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from serving import tensors

ARRAYS = [
    *(np.array([[1, 0], [3, 100]], dtype) for dtype in ("float32", "float64", "int32", "int64", "uint32", "uint64")),
    *(np.array([1, 0, 100], dtype) for dtype in ("int8", "uint8", "int16")),
    np.array([-1, 127, -128], np.int8),
    np.array([True, False]),
    np.array([[b"a\0", b"\xff"], [b"", b"bc"]], object),
    np.array(1.5, np.float32),
    np.arange(5000, dtype=np.float32).reshape(50, 100),  # its length takes more than one byte
    np.zeros([0, 3], np.float32),
    np.zeros([0], object),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_conversion_equals_tensorflow_both_ways(array: np.ndarray) -> None:
    proto = tensors.to_proto(array)
    for read in (
        tf.make_ndarray(proto),
        tensors.to_array(proto),
        tensors.to_array(tf.make_tensor_proto(array)),
    ):
        assert (read.dtype, read.shape, read.tolist()) == (array.dtype, array.shape, array.tolist())
    assert not proto.tensor_content and proto.HasField("tensor_shape")


@pytest.mark.parametrize(
    "proto, expected",
    [
        ({"dtype": 1, "float_val": [1, 2]}, [1, 2, 2]),  # the last value is repeated
        ({"dtype": 1}, [0, 0, 0]),
        ({"dtype": 7}, [b"", b"", b""]),
        ({"dtype": 7, "string_val": [b"a"]}, [b"a", b"a", b"a"]),
        ({"dtype": 7, "string_val": [b"a\0"]}, [b"a\0", b"a\0", b"a\0"]),
    ],
)
def test_missing_values_repeat_the_last_one(proto: dict, expected: list) -> None:
    message = TensorProto(**proto, tensor_shape=tf.TensorShape([3]).as_proto())
    read = tf.io.parse_tensor(message.SerializeToString(), proto["dtype"]).numpy()
    assert tensors.to_array(message).tolist() == expected == read.tolist()


@pytest.mark.parametrize(
    "proto, shape, said",
    [
        ({"dtype": 1, "float_val": [1, 2]}, [1], "float_val has 2 values; shape [1] takes 1"),
        ({"dtype": 1, "tensor_content": b"abc"}, [1], "3 bytes"),
        ({"dtype": 7, "tensor_content": b"abc"}, [1], "string_val"),
        ({"dtype": 1}, [-1], "fully known"),
        ({"dtype": 1}, None, "fully known"),
        ({"dtype": 1}, [1 << 20, 1 << 20], "at most"),
        ({"dtype": 8}, [1], "DT_COMPLEX64 is not supported"),
        ({"dtype": 0}, [1], "DT_INVALID is not supported"),
        ({"dtype": 999}, [1], "999 is not supported"),
    ],
)
def test_malformed_tensors_are_refused_with_the_reason(proto: dict, shape: list | None, said: str) -> None:
    message = TensorProto(**proto)
    if shape is None:
        message.tensor_shape.unknown_rank = True
    else:
        for size in shape:
            message.tensor_shape.dim.add(size=size)
    with pytest.raises(ValueError) as raised:
        tensors.to_array(message)
    assert said in str(raised.value)
