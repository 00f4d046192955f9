"""Converts NumPy arrays to TensorProto and back without TensorFlow; strings are object arrays of bytes.

The typed fields (`float_val`, `string_val`, ...) are written, as in TensorFlow Serving's answers, because its clients
index them. The typed fields and `tensor_content` are read.
"""

import math
from collections.abc import Sequence

import numpy as np

from serving.protos import TensorInfo, TensorProto, types_pb2

# Far more than a message can list; larger shapes can only come from a few bytes that claim them.
MAX_ELEMENTS = 1 << 23
# By the numbers of types_pb2.DataType.
_INTEGERS = ("int32", "int16", "int8", "uint8", "int64", "uint32", "uint64", "bool")
_DTYPES = {getattr(types_pb2, f"DT_{name.upper()}"): np.dtype(name) for name in _INTEGERS}
_DTYPES |= {types_pb2.DT_FLOAT: np.dtype(np.float32), types_pb2.DT_DOUBLE: np.dtype(np.float64)}
_DTYPES |= {types_pb2.DT_STRING: np.dtype(object)}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}
# Fields of TensorProto; narrow integers travel as int32. By dtype: its name takes microseconds.
_NAMES = {"float32": "float_val", "float64": "double_val", "object": "string_val"}
_NAMES |= {name: f"{name}_val" for name in ("int64", "uint32", "uint64", "bool")}
_FIELDS = {dtype: _NAMES.get(dtype.name, "int_val") for dtype in _NUMBERS}


def dtype_name(dtype: np.dtype) -> str:
    """TensorFlow's name for a NumPy dtype: `DT_STRING` for object."""
    return types_pb2.DataType.Name(_NUMBERS[dtype]) if dtype in _NUMBERS else str(dtype)


def numpy_dtype(number: int) -> np.dtype:
    """NumPy dtype of a DataType number; ValueError if it is not supported."""
    if number not in _DTYPES:
        name = types_pb2.DataType.Name(number) if number in types_pb2.DataType.values() else str(number)
        raise ValueError(f"dtype {name} is not supported")
    return _DTYPES[number]


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
    if array.dtype not in _NUMBERS:
        raise ValueError(f"dtype {array.dtype} is not supported")
    field = _FIELDS[array.dtype]
    proto = TensorProto(dtype=_NUMBERS[array.dtype])
    proto.tensor_shape.SetInParent()  # that of a scalar is present but empty
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if array.dtype.kind == "f":
        # On the wire, packed floats are the array's own bytes; extend() takes 0.3 s for a million.
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        tag = TensorProto.DESCRIPTOR.fields_by_name[field].number << 3 | 2
        proto.MergeFromString(_varint(tag) + _varint(len(data)) + data)
    else:
        getattr(proto, field).extend(array.ravel().tolist())
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
    field = _FIELDS[dtype]
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
    values = np.array(getattr(proto, field), np.int32 if field == "int_val" else dtype).astype(dtype, copy=False)
    if len(values) > count:
        raise ValueError(f"{field} has {len(values)} values; shape {shape} takes {count}")
    if len(values) < count:
        last = values[-1:] if len(values) else np.array([b"" if dtype.kind == "O" else 0], dtype)
        # Not np.full, which takes NULs off the end of bytes.
        values = np.concatenate([values, np.repeat(last, count - len(values))])
    return values.reshape(shape)
