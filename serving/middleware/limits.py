"""Checks of the size of a request."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from serving import errors
from serving.middleware.settings import LimitSettings
from serving.protos import TensorProto, types_pb2

# A client has `max_receive_seconds` to take as much of an answer.
PIECE_BYTES = 256 * 1024


def check_tensors(inputs: Mapping[str, TensorProto], limits: LimitSettings) -> None:
    """Refuse inputs whose shapes claim more than `limits`, before they are expanded; INVALID_ARGUMENT.

    A TensorProto repeats its last value: without this check, a message of a few bytes could claim gigabytes.
    """
    written = 0
    for name, proto in inputs.items():
        shape = [dim.size for dim in proto.tensor_shape.dim]
        check_rows(name, shape, limits)
        # A size of 0 must not hide the other sizes.
        count = math.prod(max(size, 1) for size in shape)
        texts = proto.string_val
        # In a message every element takes at least one byte, and a text two more than its own.
        written += count
        if proto.dtype == types_pb2.DT_STRING:
            repeated = max(count - len(texts), 0) * len(texts[-1]) if texts else 0
            written += count + sum(map(len, texts)) + repeated
    _check_written(written, limits)


def check_examples(context: int, examples: Sequence[int], limits: LimitSettings) -> None:
    """Refuse tf.Examples, and a context to be merged into each, by their sizes in bytes; INVALID_ARGUMENT."""
    _check_written(sum(examples) + len(examples) * (context + 2), limits)


def _check_written(size: int, limits: LimitSettings) -> None:
    if size > limits.max_request_bytes:
        raise errors.invalid(
            f"the inputs have {size} bytes once repeated values and contexts are expanded;"
            f" a request may have at most {limits.max_request_bytes}: send several"
        )


def check(inputs: Mapping[str, np.ndarray], limits: LimitSettings) -> None:
    """Refuse inputs above `limits`: INVALID_ARGUMENT, with the input, the row and the limit."""
    for name, array in inputs.items():
        check_rows(name, array.shape, limits)
        if array.dtype == object and array.size:
            lengths = [len(text) for text in array.ravel()]
            longest = max(lengths)
            if longest > limits.max_text_bytes:
                row = lengths.index(longest) * (array.shape[0] if array.ndim else 1) // array.size
                raise errors.invalid(
                    f'input "{name}", row {row}: {longest} bytes; a text may have at most {limits.max_text_bytes}'
                )


def check_rows(name: str, shape: Sequence[int], limits: LimitSettings) -> None:
    """Refuse an input of this shape above `max_rows`; INVALID_ARGUMENT."""
    if shape and shape[0] > limits.max_rows:
        raise errors.invalid(
            f'input "{name}" has {shape[0]} rows; a request may have at most {limits.max_rows}: send several'
        )
