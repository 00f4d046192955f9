"""Packs several short sequences into a row (arXiv 2107.02027).

Legend: N sequences, R rows, S maximum number of sequences per row, T tokens per row, P predictions per row.
"""

from collections.abc import Mapping

import numpy as np

from bert_keras.data.example_format import ExampleLayout

# A kind of row: lengths of its sequences, longest first; and the number of such rows.
_Kind = tuple[tuple[int, ...], int]

# Number of rows opened in advance, as a multiple of the minimum number of rows. The best value depends on the lengths,
# and a try costs milliseconds.
_OPENED = (0.0, 1.0, 1.02, 1.05, 1.1)


def pack_sequences(lengths: np.ndarray, max_seq_length: int, max_sequences: int) -> np.ndarray:
    """Assign sequences to rows: shortest-pack-first histogram packing, the paper's algorithm 1, and a variant.

    The algorithm takes lengths in decreasing order and adds each sequence to the shortest row with enough room, else it
    opens a row. That wastes space where S is the limit: two long sequences in a row leave no place for short ones. The
    variant opens about as many rows as are needed in advance, each with one of the longest sequences. The result with
    the fewest rows wins. (For docstrings, 512 tokens, S = 3: 0.83 full instead of 0.75.)

    Returns int32 [R, S], indices of sequences, then -1. Each sequence is in one row. Within a row lengths decrease;
    sequences of equal length keep their order.
    """
    counts = np.bincount(lengths, minlength=max_seq_length + 1).tolist()
    fewest = max(-(-len(lengths) // max_sequences), -(-int(lengths.sum()) // max_seq_length))
    tries = [_kinds(counts, max_sequences, int(fewest * opened)) for opened in _OPENED]
    kinds = min(tries, key=lambda kinds: sum(number for _, number in kinds))
    by_length = np.argsort(lengths, kind="stable").astype(np.int32)
    first = [0, *np.cumsum(counts).tolist()]  # next sequence to take, by length
    rows = np.full((sum(number for _, number in kinds), max_sequences), -1, np.int32)
    row = 0
    for kind, number in kinds:
        for slot, length in enumerate(kind):
            rows[row : row + number, slot] = by_length[first[length] : first[length] + number]
            first[length] += number
        row += number
    return rows


def _kinds(counts: list[int], max_sequences: int, opened: int) -> list[_Kind]:
    """Kinds of rows for `counts[length]` sequences of each length; `opened` rows begin with the longest ones."""
    max_seq_length = len(counts) - 1
    with_room: list[list[_Kind]] = [[] for _ in counts]  # by number of free tokens
    full: list[_Kind] = []
    rows = 0

    def add(kind: tuple[int, ...], number: int, room: int) -> None:
        (with_room[room] if room and len(kind) < max_sequences else full).append((kind, number))

    for length in range(max_seq_length, 0, -1):
        remaining = counts[length]
        widest = max_seq_length - 1
        while remaining:
            kind: tuple[int, ...] = ()
            if rows < opened:
                number, room = min(remaining, opened - rows), max_seq_length
                rows += number
            else:
                while widest >= length and not with_room[widest]:
                    widest -= 1
                if widest >= length:
                    kind, available = with_room[widest].pop()
                    number, room = min(remaining, available), widest
                    if number < available:
                        with_room[widest].append((kind, available - number))
                else:
                    number, room = remaining, max_seq_length
                    rows += number
            add((*kind, length), number, room - length)
            remaining -= number
            widest = max(widest, room - length)
    return full + [kind for kinds in with_room for kind in kinds]


def pack_features(
    features: Mapping[str, np.ndarray], sequences_of_row: np.ndarray, layout: ExampleLayout, pad_id: int
) -> dict[str, np.ndarray]:
    """Place the features of N sequences side by side in R rows (worked example: `bert_keras.data.example_format`).

    The first ones go to row 0, the next to row 1, ...: `sequences_of_row`, int64 [R], at least 1 each.
    """
    R, T, P, S = len(sequences_of_row), layout.max_seq_length, layout.max_predictions_per_seq, layout.max_sequences
    is_token = features["input_mask"] != 0
    lengths = is_token.sum(1)
    first = np.cumsum(sequences_of_row) - sequences_of_row  # first sequence of each row
    row = np.repeat(np.arange(R), sequences_of_row)
    slot = np.arange(len(lengths)) - first[row]
    start = np.cumsum(lengths) - lengths
    start -= start[first][row]  # column of each sequence

    sources = np.flatnonzero(is_token)
    targets = np.flatnonzero(np.arange(T) < np.add.reduceat(lengths, first)[:, None])

    def lay(values: np.ndarray, fill: int) -> np.ndarray:
        laid = np.full((R, T), fill, values.dtype)
        laid.ravel()[targets] = values
        return laid

    packed = {
        "input_ids": lay(features["input_ids"].ravel()[sources], pad_id),
        "input_mask": lay(features["input_mask"].ravel()[sources], 0),
        "segment_ids": lay(features["segment_ids"].ravel()[sources], 0),
        "sequence_ids": lay(np.repeat((slot + 1).astype(np.uint8), lengths), 0),
        "position_ids": lay((sources % T).astype(np.int32), 0),
    }
    if "masked_lm_weights" in features:
        is_prediction = features["masked_lm_weights"] > 0
        predictions = is_prediction.sum(1)
        there = np.arange(P) < np.add.reduceat(predictions, first)[:, None]
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            packed[name] = np.zeros((R, P), features[name].dtype)
            packed[name][there] = features[name][is_prediction]
        packed["masked_lm_positions"][there] += np.repeat(start, predictions).astype(np.int32)
    if "next_sentence_labels" in features:
        for name, dtype, value in (
            ("next_sentence_labels", np.uint8, features["next_sentence_labels"][:, 0]),
            ("next_sentence_positions", np.int32, start),
            ("next_sentence_weights", np.float32, 1.0),
        ):
            packed[name] = np.zeros((R, S), dtype)
            packed[name][row, slot] = value
    return packed
