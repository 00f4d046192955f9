"""How large a request may be, and how slow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from serving import errors
from serving.protos import TensorProto
from serving.tensors import MAX_ELEMENTS

_MOST_BYTES = 2**31 - 1


@dataclass(frozen=True)
class LimitSettings:
    """What one request may be at most.

    Attributes:
        max_request_bytes: of the whole message: above it gRPC answers RESOURCE_EXHAUSTED and REST 413; the default
            is gRPC's own.
        max_rows: of an input; INVALID_ARGUMENT above it.
        max_text_bytes: of one string of an input, be it a text (in UTF-8) or a serialized tf.Example;
            INVALID_ARGUMENT above it.
        max_receive_seconds: how long the message may take to arrive: then gRPC's call is CANCELLED, REST's a 408.
    """

    max_request_bytes: int = 4 * 1024 * 1024
    max_rows: int = 4096
    max_text_bytes: int = 1024 * 1024
    max_receive_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_request_bytes", "max_rows", "max_text_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.max_receive_seconds > 0:
            raise ValueError(f"max_receive_seconds is {self.max_receive_seconds}; it must be above 0")
        if self.max_request_bytes > _MOST_BYTES:
            raise ValueError(f"max_request_bytes is {self.max_request_bytes}; gRPC takes at most {_MOST_BYTES}")


def check_shapes(inputs: Mapping[str, TensorProto], limits: LimitSettings) -> None:
    """Refuses, before they are spelt out, inputs whose shapes claim more than `limits`; INVALID_ARGUMENT.

    A TensorProto repeats its last value: without this, a message of a few kilobytes with many inputs would claim
    gigabytes.
    """
    elements = 0
    for name, proto in inputs.items():
        shape = [dim.size for dim in proto.tensor_shape.dim]
        _check_rows(name, shape, limits)
        elements += math.prod(max(size, 0) for size in shape)
    if elements > MAX_ELEMENTS:
        raise errors.invalid(f"the inputs have {elements} elements; at most {MAX_ELEMENTS} are read")


def check(inputs: Mapping[str, np.ndarray], limits: LimitSettings) -> None:
    """Refuses inputs above `limits`: INVALID_ARGUMENT, naming the input, the row and the limit."""
    for name, array in inputs.items():
        _check_rows(name, array.shape, limits)
        if array.dtype == object and array.size:
            lengths = [len(text) for text in array.ravel()]
            longest = max(lengths)
            if longest > limits.max_text_bytes:
                row = lengths.index(longest) * (array.shape[0] if array.ndim else 1) // array.size
                raise errors.invalid(
                    f'input "{name}", row {row}: {longest} bytes; a text may have at most {limits.max_text_bytes}'
                )


def _check_rows(name: str, shape: tuple[int, ...] | list[int], limits: LimitSettings) -> None:
    if shape and shape[0] > limits.max_rows:
        raise errors.invalid(
            f'input "{name}" has {shape[0]} rows; a request may have at most {limits.max_rows}: send several'
        )
