"""Arrays of examples -> serialized tf.Examples (`bert_keras.features` declares which features).

A tf.Example is a map, which protocol buffers may write in any order: tfx-bsl's RecordBatch encoder gives
other bytes in every process (and takes 45 us for an example of T = 128, the Python classes 28, this 5). Here
features come in the order of their names, so the same arrays give the same bytes: those of
`SerializeToString(deterministic=True)`.

What is written, for {"next_sentence_labels": [[1]], "weights": [[1.0]]} (one example, two features):

    0a 34                                                 Example.features, 52 bytes
       0a 1d                                                Features.feature, an entry of the map, 29 bytes
          0a 14 "next_sentence_labels"                        key
          12 05                                               value, a Feature
             1a 03                                              Feature.int64_list
                0a 01 01                                          Int64List.value, packed: one varint, 1
       0a 13 ...                                            the next entry ("weights", Feature.float_list)

Rows differ in length only by how many bytes each varint takes. So all rows are laid out in one matrix, in
which every varint has room for the longest, with a mask of the bytes that are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

# Tags of the wire format: field number << 3 | 2 (a length, then as many bytes).
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A
_FEATURES = _FEATURE = _KEY = _PACKED_VALUES = _FIELD_1
_VALUE = _FLOAT_LIST = _FIELD_2
_INT64_LIST = _FIELD_3


class _Wire(NamedTuple):
    """N strings of bytes: row n is, piece after piece, `piece[n][present[n]]`.

    Attributes:
        pieces: uint8 [N or 1, W] and bool [N or 1, W]; with 1 row, the same for all.
        size: int64 [N] or [1], bytes present in each row.
    """

    pieces: list[tuple[np.ndarray, np.ndarray]]
    size: np.ndarray


def _raw(data: np.ndarray) -> _Wire:
    return _Wire([(data, np.ones((1, data.shape[1]), bool))], np.array([data.shape[1]]))


def _varints(values: np.ndarray) -> _Wire:
    """Integers [N, K] >= 0 in base 128, lowest digit first; a high bit says that another digit follows."""
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    data = np.empty((*values.shape, width), np.uint8)
    present = np.empty(data.shape, bool)
    for digit in range(width):
        rest = values >> (7 * digit)
        data[..., digit] = rest & 0x7F | (rest > 0x7F).astype(np.uint8) << 7
        present[..., digit] = rest > 0 if digit else True
    row_shape = (len(values), values.shape[1] * width)
    data, present = data.reshape(row_shape), present.reshape(row_shape)
    return _Wire([(data, present)], present.sum(1))


def _join(*wires: _Wire) -> _Wire:
    pieces = [piece for wire in wires for piece in wire.pieces]
    return _Wire(pieces, sum((wire.size for wire in wires), np.zeros(1, np.int64)))


def _delimited(tag: int, content: _Wire) -> _Wire:
    return _join(_raw(np.array([[tag]], np.uint8)), _varints(content.size[:, None]), content)


def _feature(name: str, values: np.ndarray) -> _Wire:
    if values.ndim != 2:
        raise ValueError(f"feature {name!r} has shape {values.shape}; examples are encoded from [examples, values]")
    if np.issubdtype(values.dtype, np.floating):
        packed = _raw(np.ascontiguousarray(values, "<f4").view(np.uint8))
        return _delimited(_FLOAT_LIST, _delimited(_PACKED_VALUES, packed))
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"feature {name!r} is of type {values.dtype}; examples hold integers or floats")
    if values.min(initial=0) < 0:
        raise ValueError(f"feature {name!r} holds {values.min()}; ids, positions and labels are at least 0")
    return _delimited(_INT64_LIST, _delimited(_PACKED_VALUES, _varints(values)))


def encode_examples(features: Mapping[str, np.ndarray]) -> list[bytes]:
    """Serialized tf.Examples, one for each row.

    Args:
        features: name -> [N, values]; integers >= 0 become int64 features, floats float features.

    Raises:
        ValueError: a feature of another rank, type, sign or number of rows; it is named.
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

    data = np.empty((num_examples, sum(piece.shape[1] for piece, _ in example.pieces)), np.uint8)
    present = np.empty(data.shape, bool)
    column = 0
    for piece, piece_present in example.pieces:
        columns = slice(column, column := column + piece.shape[1])
        data[:, columns], present[:, columns] = piece, piece_present
    encoded = data[present].tobytes()
    ends = np.cumsum(np.broadcast_to(example.size, num_examples)).tolist()
    return [encoded[start:end] for start, end in itertools.pairwise([0, *ends])]
