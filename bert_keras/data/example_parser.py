"""Serialized tf.Examples as arrays, in NumPy: `tf.io.parse_example` without TensorFlow.

Legend: B examples, L values of a feature.

An entry of an example is a header, then the packed values of a feature (`tf_example_encoder.py` shows one). The header
has the name, the type and all lengths, and few headers differ: so they are looked up as a whole, and only new ones are
read field by field. The values of a feature in all examples are decoded together.

Protocol buffers allow other forms of the same message, such as values that are not packed. Protobuf's own classes read
those, at twice the time or more.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_keras.data.example_format import Feature
from bert_keras.data.tfrecord import Example
from bert_keras.errors import InputError

Arrays = dict[str, np.ndarray]
# Shape and type of a row by the array's name; None: an axis whose length differs between batches.
RowShapes = dict[str, tuple[tuple[int | None, ...], np.dtype]]

# Tags of the wire format, as in `tf_example_encoder`.
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A
# A foreign writer may have any number of them.
_MAX_HEADERS = 1 << 16


def row_shapes(features: Mapping[str, Feature]) -> RowShapes:
    """Those of parsed examples."""
    return {
        name: ((feature.length,), np.dtype("float32" if feature.holds == "weights" else "int32"))
        for name, feature in features.items()
    }


class _OtherForm(Exception):
    """A form that only protobuf's classes read."""


class ExampleParser:
    """Parser of serialized tf.Examples with features of fixed lengths; others in an example are skipped."""

    def __init__(self, features: Mapping[str, Feature]):
        self._features = [
            (name, "float_list" if feature.holds == "weights" else "int64_list", feature.length)
            for name, feature in features.items()
        ]
        self._columns = {name.encode(): column for column, name in enumerate(features)}
        # Column (-1: not wanted) and number of the bytes after each header seen; its size at each place of an example.
        self._headers: dict[bytes, tuple[int, int]] = {}
        self._sizes: list[int] = []

    def __call__(self, examples: Sequence[bytes], place: Callable[[int], str] = "example {}".format) -> Arrays:
        """Parse a batch.

        `examples`: B serialized tf.Examples, at least one. `place`: file and record of an example of the batch by its
        index, for errors. Returns by name: float32 [B, L] of `weights`; int32 [B, L] of others, the lower 32 bits of an
        int64. InputError: no tf.Example; a feature is missing, or has another type or number of values.
        """
        rows = []
        for index, example in enumerate(examples):
            try:
                rows.append(self._payloads(example))
            except (_OtherForm, IndexError):
                rows.append(self._by_protobuf(example, place, index))
        parsed = {}
        for (name, kind, L), payloads in zip(self._features, zip(*rows, strict=True), strict=True):
            decode = _floats if kind == "float_list" else _integers
            if (values := decode(payloads, L)) is None:
                index = next(row for row, payload in enumerate(payloads) if decode([payload], L) is None)
                self._by_protobuf(examples[index], place, index)  # raises if no varint has such digits
                count = len(payloads[index]) // 4 if decode is _floats else sum(d < 0x80 for d in payloads[index])
                raise _error(place(index), f"feature {name!r} has {count} values, not {L}")
            parsed[name] = values
        return parsed

    def _payloads(self, example: bytes) -> list[bytes]:
        """The packed values of each feature."""
        payloads = [b""] * len(self._columns)
        size, at = _varint(example, 1)
        if example[0] != _FIELD_1 or at + size != len(example):
            raise _OtherForm
        sizes, known = self._sizes, self._headers
        for number in itertools.count():
            if at >= len(example):
                break
            values = at + (sizes[number] if number < len(sizes) else 0)
            header = known.get(example[at:values])
            if header is None:
                header, values = self._read_header(example, at, number)
            column, length = header
            at = values + length
            if column >= 0:
                payloads[column] = example[values:at]
        if at != len(example) or b"" in payloads:
            raise _OtherForm
        return payloads

    def _read_header(self, example: bytes, at: int, number: int) -> tuple[tuple[int, int], int]:
        """Column and length of the entry at `at`, and where its values begin."""

        def inside(tag: int, start: int, end: int) -> int:
            """The position where the content of the field `tag` begins, which is all from `start` to `end`."""
            size, content = _varint(example, start + 1)
            if example[start] != tag or content + size != end:
                raise _OtherForm
            return content

        size, start = _varint(example, at + 1)
        end = start + size
        length, key = _varint(example, start + 1)
        if example[at] != _FIELD_1 or example[start] != _FIELD_1 or end > len(example):
            raise _OtherForm
        values = inside(_FIELD_2, key + length, end)
        column = self._columns.get(example[key : key + length], -1)
        if column >= 0:
            kind = self._features[column][1]
            values = inside(_FIELD_2 if kind == "float_list" else _FIELD_3, values, end)
            values = inside(_FIELD_1, values, end)
        if len(self._headers) > _MAX_HEADERS:
            self._headers.clear()
        self._headers[example[at:values]] = column, end - values
        self._sizes[number : number + 1] = [values - at]
        return (column, end - values), values

    def _by_protobuf(self, example: bytes, place: Callable[[int], str], index: int) -> list[bytes]:
        """`_payloads` of any form."""
        try:
            features = Example.FromString(example).features.feature
        except Exception as error:  # protobuf's own error class differs between its implementations
            raise _error(place(index), "is no tf.Example") from error
        payloads = []
        for name, wanted, _ in self._features:
            kind = features[name].WhichOneof("kind") if name in features else None
            if kind != wanted:
                problem = f"holds {kind}, not {wanted}" if kind else "is missing"
                raise _error(place(index), f"feature {name!r} {problem}")
            packed = getattr(features[name], kind).SerializeToString()
            payloads.append(packed[_varint(packed, 1)[1] :] if packed else b"")
        return payloads


def _error(place: str, problem: str) -> InputError:
    return InputError(f"{place}: {problem}; make the examples again with this version")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _floats(payloads: Sequence[bytes], L: int) -> np.ndarray | None:
    """float32 [B, L]; None: a payload has another number of values."""
    if {*map(len, payloads)} != {4 * L}:
        return None
    return np.frombuffer(b"".join(payloads), "<f4").astype(np.float32).reshape(-1, L)


def _integers(payloads: Sequence[bytes], L: int) -> np.ndarray | None:
    """int32 [B, L] of packed varints; None: a payload has another number of values."""
    # A varint has seven bits a digit, the lowest digit first; the last digit is below 0x80.
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    padded = np.frombuffer(b"".join([*payloads, bytes(4)]), np.uint8)
    data = padded[:-4]
    last = data < 0x80
    if (sizes == L).all() and last.all():
        return data.astype(np.int32).reshape(-1, L)
    ends = np.flatnonzero(last)
    # Each row's last value ends where its bytes end.
    if len(ends) != len(sizes) * L or (ends[L - 1 :: L] != np.cumsum(sizes) - 1).any():
        return None
    starts = np.append(0, ends[:-1] + 1)
    # The first four digits of each as one number, most of them with digits of the next.
    words: np.ndarray = np.ndarray(len(data), "<u4", padded, strides=(1,)).take(starts)
    stops = ~words & np.uint32(0x80808080)
    stops &= -stops  # the highest bit of the last digit; 0: it is none of the four
    pairs = words & (2 * stops - 1) & np.uint32(0x7F7F7F7F)
    pairs = pairs & np.uint32(0x007F007F) | (pairs & np.uint32(0x7F007F00)) >> np.uint32(1)
    values = pairs & np.uint32(0x3FFF) | (pairs & np.uint32(0x3FFF0000)) >> np.uint32(2)
    longer = np.flatnonzero(stops == 0)
    if (ends[longer] - starts[longer] >= 10).any():
        return None
    values[longer] |= padded[starts[longer] + 4].astype(np.uint32) << np.uint32(28)  # higher digits: above 32 bits
    return values.view(np.int32).reshape(-1, L)
