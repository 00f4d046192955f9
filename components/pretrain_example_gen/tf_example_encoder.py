"""Encodes arrays of examples as serialized tf.Examples in TFRecords (`bert_keras.data.example_format`).

A tf.Example is a map, whose entries protocol buffers may write in any order: tfx-bsl's RecordBatch encoder gives other
bytes in every process (and takes 45 us for an example of T = 128; the Python classes take 28, this encoder 4). Here
features are sorted by name, so the same arrays give the same bytes, those of
`SerializeToString(deterministic=True)`.

The encoding of {"next_sentence_labels": [[1]], "weights": [[1.0]]} (one example, two features):

    0a 34                                                 Example.features, 52 bytes
       0a 1d                                                Features.feature, an entry of the map, 29 bytes
          0a 14 "next_sentence_labels"                        key
          12 05                                               value, a Feature
             1a 03                                              Feature.int64_list
                0a 01 01                                          Int64List.value, packed: one varint, 1
       0a 13 ...                                            the next entry ("weights", Feature.float_list)

Rows differ in length only by the size of each varint. So all rows are placed in one matrix, in which every varint has
room for the longest, with a mask of the bytes that are present. Each row includes the length and the checksums of a
record (`bert_keras.data.tfrecord`), so a block is written by one call.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bert_keras.data.tfrecord import checksum

# Tags of the wire format: field number << 3 | 2 (length-delimited).
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A
_FEATURES = _FEATURE = _KEY = _PACKED_VALUES = _BYTES_LIST = _FIELD_1
_VALUE = _FLOAT_LIST = _FIELD_2
_INT64_LIST = _FIELD_3

# Tables of varints cover values of up to this number of bits: 16 MB, enough for any vocabulary.
_TABLE_BITS = 20

# Header: length, uint64, and its checksum; footer: checksum of the record.
_HEADER_SIZE, _FOOTER_SIZE = 12, 4


class _Wire(NamedTuple):
    """N byte strings: row n is the concatenation of `piece[n][present[n]]` of all pieces."""

    pieces: list[tuple[np.ndarray, np.ndarray]]  # uint8 [N or 1, W] and bool [N or 1, W]; with 1 row, the same for all
    size: np.ndarray  # int64 [N] or [1], number of bytes present in each row


def _raw(data: np.ndarray) -> _Wire:
    return _Wire([(data, np.ones((1, data.shape[1]), bool))], np.array([data.shape[1]]))


def _varints(values: np.ndarray) -> _Wire:
    """Integers [N, K] >= 0 in base 128, lowest digit first; the high bit marks all digits but the last."""
    N = len(values)
    bits = int(values.max(initial=0)).bit_length()
    if bits <= 7:
        return _raw(values.astype(np.uint8))
    if bits <= _TABLE_BITS:
        # All digits are looked up as one number, which is many times faster than computing them.
        numbers = (table.take(values, mode="clip") for table in _varint_tables(bits))
        data, present = (number.view(np.uint8).reshape(N, -1) for number in numbers)
    else:
        data, present = (digits.reshape(N, -1) for digits in _digits(values, -(-bits // 7)))
    present = present.view(np.bool_)
    return _Wire([(data, present)], present.sum(1))


def _digits(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Uint8 [..., width], the digits of `values` [...], and 1 where there is one, else 0."""
    shifted = values[..., None] >> (7 * np.arange(width))
    data = (shifted & 0x7F | (shifted > 0x7F) << 7).astype(np.uint8)
    present = shifted > 0
    present[..., 0] = True
    return data, present.view(np.uint8)


@functools.lru_cache
def _varint_tables(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """`_digits` of each value below 2**bits as one number: uint16 for two digits, uint32 for three (and a gap)."""
    width = 2 if bits <= 14 else 4
    data, present = _digits(np.arange(1 << bits), width)
    as_number = np.uint16 if width == 2 else np.uint32
    return data.view(as_number).ravel(), present.view(as_number).ravel()


def _join(*wires: _Wire) -> _Wire:
    pieces = [piece for wire in wires for piece in wire.pieces]
    return _Wire(pieces, sum((wire.size for wire in wires), np.zeros(1, np.int64)))


def _delimited(tag: int, content: _Wire) -> _Wire:
    return _join(_raw(np.array([[tag]], np.uint8)), _varints(content.size[:, None]), content)


def _feature(name: str, values: np.ndarray) -> _Wire:
    if values.ndim != 2:
        raise ValueError(f"feature {name!r} has shape {values.shape}; examples are encoded from [examples, values]")
    if values.dtype.kind == "S" and values.shape[1] == 1:
        return _delimited(_BYTES_LIST, _delimited(_PACKED_VALUES, _raw(values.view(np.uint8))))
    if np.issubdtype(values.dtype, np.floating):
        packed = _raw(np.ascontiguousarray(values, "<f4").view(np.uint8))
        return _delimited(_FLOAT_LIST, _delimited(_PACKED_VALUES, packed))
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"feature {name!r} is of type {values.dtype}; examples hold integers or floats")
    if values.min(initial=0) < 0:
        raise ValueError(f"feature {name!r} holds {values.min()}; ids, positions and labels are at least 0")
    return _delimited(_INT64_LIST, _delimited(_PACKED_VALUES, _varints(values)))


@functools.lru_cache(maxsize=1 << 16)
def _record_header(size: int) -> bytes:
    length = size.to_bytes(8, "little")
    return length + checksum(length).to_bytes(4, "little")


def _record_headers(sizes: np.ndarray) -> np.ndarray:
    """Uint8 [N, 12], headers of records with these sizes, int64 [N]."""
    headers = b"".join(map(_record_header, sizes.tolist()))
    return np.frombuffer(headers, np.uint8).reshape(-1, _HEADER_SIZE)


def _fill_checksums(encoded: np.ndarray, ends: np.ndarray, sizes: np.ndarray) -> None:
    """Write the checksum of each record after its end, int64 [N], in uint8 [bytes]."""
    data = encoded.tobytes()
    checksums = [checksum(data[end - size : end]) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
    footers = np.array(checksums, "<u4").view(np.uint8).reshape(-1, _FOOTER_SIZE)
    encoded[ends[:, None] + np.arange(_FOOTER_SIZE)] = footers


def encode_records(features: Mapping[str, np.ndarray]) -> bytes:
    """Serialized tf.Examples, one per row, as consecutive TFRecords.

    Features are [N, values]: integers >= 0 become int64 features, floats float features; byte strings [N, 1] of one
    length a bytes feature. ValueError: one has another rank, type, sign or number of rows.
    """
    num_examples = len(next(iter(features.values())))
    for name, values in features.items():
        if len(values) != num_examples:
            raise ValueError(f"feature {name!r} has {len(values)} rows; the first feature has {num_examples}")
    entries = []
    for name in sorted(features):
        key = _delimited(_KEY, _raw(np.frombuffer(name.encode(), np.uint8)[None]))
        entries.append(_delimited(_FEATURE, _join(key, _delimited(_VALUE, _feature(name, features[name])))))
    example = _delimited(_FEATURES, _join(*entries))
    sizes = np.broadcast_to(example.size, num_examples)
    records = _join(_raw(_record_headers(sizes)), example, _raw(np.zeros((1, _FOOTER_SIZE), np.uint8)))

    data = np.empty((num_examples, sum(piece.shape[1] for piece, _ in records.pieces)), np.uint8)
    present = np.empty(data.shape, bool)
    column = 0
    for piece, piece_present in records.pieces:
        columns = slice(column, column := column + piece.shape[1])
        data[:, columns], present[:, columns] = piece, piece_present
    encoded = data.ravel().compress(present.ravel())  # twice as fast as data[present]
    ends = np.cumsum(sizes + _HEADER_SIZE + _FOOTER_SIZE) - _FOOTER_SIZE
    _fill_checksums(encoded, ends, sizes)
    return encoded.tobytes()
