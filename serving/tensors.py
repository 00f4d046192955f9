"""Converts NumPy arrays to TensorProto and back without TensorFlow; strings are object arrays of bytes.

The typed fields (`float_val`, `string_val`, ...) are written, as in TensorFlow Serving's answers, because its clients
index them. The typed fields and `tensor_content` are read.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from serving.protos import TensorInfo, TensorProto, types_pb2

# Far more than a message can list; larger shapes can only come from a few bytes that claim them.
MAX_ELEMENTS = 1 << 23


class _Kind(NamedTuple):
    number: int  # of types_pb2.DataType
    dtype: np.dtype
    field: str  # of TensorProto
    field_dtype: np.dtype  # dtype of the field: narrow integers travel as int32


_KINDS = [
    _Kind(types_pb2.DT_FLOAT, np.dtype(np.float32), "float_val", np.dtype(np.float32)),
    _Kind(types_pb2.DT_DOUBLE, np.dtype(np.float64), "double_val", np.dtype(np.float64)),
    _Kind(types_pb2.DT_INT32, np.dtype(np.int32), "int_val", np.dtype(np.int32)),
    _Kind(types_pb2.DT_INT16, np.dtype(np.int16), "int_val", np.dtype(np.int32)),
    _Kind(types_pb2.DT_INT8, np.dtype(np.int8), "int_val", np.dtype(np.int32)),
    _Kind(types_pb2.DT_UINT8, np.dtype(np.uint8), "int_val", np.dtype(np.int32)),
    _Kind(types_pb2.DT_INT64, np.dtype(np.int64), "int64_val", np.dtype(np.int64)),
    _Kind(types_pb2.DT_UINT32, np.dtype(np.uint32), "uint32_val", np.dtype(np.uint32)),
    _Kind(types_pb2.DT_UINT64, np.dtype(np.uint64), "uint64_val", np.dtype(np.uint64)),
    _Kind(types_pb2.DT_BOOL, np.dtype(np.bool_), "bool_val", np.dtype(np.bool_)),
    _Kind(types_pb2.DT_STRING, np.dtype(object), "string_val", np.dtype(object)),
]
_BY_NUMBER = {kind.number: kind for kind in _KINDS}
_BY_DTYPE = {kind.dtype: kind for kind in _KINDS}


def dtype_name(dtype: np.dtype) -> str:
    """TensorFlow's name for a NumPy dtype: `DT_STRING` for object."""
    return types_pb2.DataType.Name(_BY_DTYPE[dtype].number) if dtype in _BY_DTYPE else str(dtype)


def numpy_dtype(number: int) -> np.dtype:
    """NumPy dtype of a DataType number; ValueError if it is not supported."""
    if number not in _BY_NUMBER:
        name = types_pb2.DataType.Name(number) if number in types_pb2.DataType.values() else str(number)
        raise ValueError(f"dtype {name} is not supported")
    return _BY_NUMBER[number].dtype


def fits(shape: Sequence[int], info: TensorInfo) -> bool:
    """Tell if a signature asks for a tensor of this shape."""
    if info.tensor_shape.unknown_rank:
        return True
    sizes = [dim.size for dim in info.tensor_shape.dim]
    return len(sizes) == len(shape) and all(size in (-1, given) for size, given in zip(sizes, shape, strict=True))


def describe(name: str, info: TensorInfo) -> str:
    """`text: DT_STRING[?]`"""
    sizes = ", ".join("?" if dim.size == -1 else str(dim.size) for dim in info.tensor_shape.dim)
    shape = "..." if info.tensor_shape.unknown_rank else sizes
    return f"{name}: {dtype_name(numpy_dtype(info.dtype))}[{shape}]"


def to_proto(array: np.ndarray) -> TensorProto:
    """`array` as a TensorProto with its typed field filled; ValueError for a dtype outside the table."""
    if array.dtype not in _BY_DTYPE:
        raise ValueError(f"dtype {array.dtype} is not supported")
    kind = _BY_DTYPE[array.dtype]
    proto = TensorProto(dtype=kind.number)
    proto.tensor_shape.SetInParent()  # the shape of a scalar is present but empty
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if kind.dtype.kind == "f":
        # On the wire, packed floats are the array's own bytes; extend() takes 0.3 s for a million.
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        tag = TensorProto.DESCRIPTOR.fields_by_name[kind.field].number << 3 | 2
        proto.MergeFromString(_varint(tag) + _varint(len(data)) + data)
    else:
        getattr(proto, kind.field).extend(array.ravel().tolist())
    return proto


def _varint(number: int) -> bytes:
    """Protobuf's varint: seven bits per byte, lowest first, the top bit set on all bytes but the last."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def to_array(proto: TensorProto) -> np.ndarray:
    """Array of a TensorProto; ValueError if it is malformed.

    As in TensorFlow, missing values repeat the last one; without any value the array is zeros.
    """
    dtype = numpy_dtype(proto.dtype)
    kind = _BY_NUMBER[proto.dtype]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise ValueError("the shape of a tensor that is sent must be fully known")
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        raise ValueError(f"shape {shape} has {count} elements; at most {MAX_ELEMENTS} are read")
    if proto.tensor_content:
        if dtype.kind == "O":
            raise ValueError("strings are sent in string_val, not in tensor_content")
        if len(proto.tensor_content) != count * dtype.itemsize:
            raise ValueError(f"tensor_content of {len(proto.tensor_content)} bytes does not fill {dtype}{shape}")
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    values = np.array(getattr(proto, kind.field), dtype=kind.field_dtype).astype(dtype, copy=False)
    if len(values) > count:
        raise ValueError(f"{kind.field} has {len(values)} values; shape {shape} takes {count}")
    if len(values) < count:
        last = values[-1:] if len(values) else np.array([b"" if dtype.kind == "O" else 0], dtype)
        # Not np.full, which takes NULs off the end of bytes.
        values = np.concatenate([values, np.repeat(last, count - len(values))])
    return values.reshape(shape)
