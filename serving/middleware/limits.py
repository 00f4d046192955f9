"""Limits for the size of a request and its answer, and for slow clients."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving import errors
from serving.protos import TensorProto, types_pb2

_MOST_BYTES = 2**31 - 1
# A client has `max_receive_seconds` to take as much of an answer.
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True)
class LimitSettings:
    """Limits for one request.

    Attributes:
        max_request_bytes: size of the whole message: above it gRPC answers RESOURCE_EXHAUSTED and REST 413. The
            default is gRPC's own. The inputs are also held to it after repeated values and a context have been
            expanded: INVALID_ARGUMENT.
        max_rows: rows of an input; INVALID_ARGUMENT above it.
        max_text_bytes: size of one string of an input, whether a text (UTF-8) or a serialized tf.Example;
            INVALID_ARGUMENT above it.
        max_answer_bytes: size of the wanted outputs as sent, computed from their shapes before execution (REST: as
            JSON, four times the arrays); RESOURCE_EXHAUSTED above it, and while eight of this size are in flight,
            which take four times their size.
        max_receive_seconds: time for the message to arrive; then gRPC's call is CANCELLED, REST answers 408. Also time
            for a client to take 256 KiB of its answer; then the call is cancelled, the connection closed.
        max_connections: connections per port (`serving.middleware.connections`).
        max_address_connections: connections per client address, which may be a proxy's.
        max_head_seconds: time for a connection to send the head of a request.
        max_idle_seconds: time for a gRPC connection without a call; clients reconnect by themselves.
    """

    max_request_bytes: int = 4 * 1024 * 1024
    max_rows: int = 4096
    max_text_bytes: int = 1024 * 1024
    max_answer_bytes: int = 32 * 1024 * 1024
    max_receive_seconds: float = 30.0
    max_connections: int = 500
    max_address_connections: int = 250
    max_head_seconds: float = 10.0
    max_idle_seconds: float = 300.0

    def __post_init__(self) -> None:
        counts = ("max_request_bytes", "max_rows", "max_text_bytes", "max_answer_bytes")
        for name in (*counts, "max_connections", "max_address_connections"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("max_receive_seconds", "max_head_seconds", "max_idle_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.max_request_bytes > _MOST_BYTES:
            raise ValueError(f"max_request_bytes is {self.max_request_bytes}; gRPC takes at most {_MOST_BYTES}")


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
