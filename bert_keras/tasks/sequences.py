"""The encoder's inputs for texts and pairs of texts, in the format of google-research/bert's run_classifier.py.

    [CLS] text [SEP]               segments 0 0 0
    [CLS] text [SEP] pair [SEP]    segments 0 0 0 1 1

With RoBERTa's tokenizer, in fairseq's format (models/roberta/hub_interface.py, `encode`):

    <s> text </s>                  segments 0 0 0
    <s> text </s> </s> pair </s>   segments 0 0 0 0 0 0

Shapes: N sequences, T tokens.
"""

import dataclasses
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.tasks.settings import TaskSettings
from bert_keras.tokenizers.protocol import Tokenizer


def truncate_pair(length_a, length_b, budget: int):
    """Number of tokens of A and of B to keep, int [B] each, so that both fit `budget`.

    In closed form, for B pairs, arrays or tensors of a graph. Equal to run_classifier.py's `_truncate_seq_pair`, which
    removes one token at a time: the last of the longer text, on a tie of B. (Pre-training truncates at both ends.)
    """
    # A server of ONNX Runtime has no Keras.
    ops = np if isinstance(length_a, np.ndarray) else importlib.import_module("keras").ops
    kept_a = ops.minimum(length_a, ops.maximum(budget - length_b, (budget + 1) // 2))
    return kept_a, ops.minimum(length_b, budget - kept_a)


def head_room(room: int, truncation: str) -> int:
    """Number of tokens to keep from the head of a text that is cut to `room` tokens; the others come from its tail.

    `truncation`: `head`, `tail` or `head_tail` (`bert_keras.tasks.settings.TaskSettings`).
    """
    # A quarter to the nearest, halves up: the paper's 128 of 510.
    return {"head": room, "tail": 0, "head_tail": (room + 2) // 4}[truncation]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenRuns:
    """Runs of token ids: run i is `ids[starts[i] : starts[i] + lengths[i]]`."""

    ids: np.ndarray  # int32, for all texts
    starts: np.ndarray  # int64 [N]
    lengths: np.ndarray  # int64 [N]

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> "TokenRuns":
        """The tokens of texts."""
        return cls.of_splits(*tokenizer.encode(texts))

    @classmethod
    def of_splits(cls, ids: np.ndarray, splits: np.ndarray) -> "TokenRuns":
        """Run i is `ids[splits[i] : splits[i + 1]]`, as `Tokenizer.encode_words` returns them."""
        return cls(ids, splits[:-1], np.diff(splits))

    def first(self, counts: np.ndarray) -> "TokenRuns":
        """The first `counts` int [N] of each run."""
        return TokenRuns(self.ids, self.starts, counts)

    def last(self, counts: np.ndarray) -> "TokenRuns":
        """The last `counts` int [N] of each run."""
        return TokenRuns(self.ids, self.starts + self.lengths - counts, counts)

    def __getitem__(self, runs: np.ndarray) -> "TokenRuns":
        """Select runs by number."""
        return TokenRuns(self.ids, self.starts[runs], self.lengths[runs])


def single_sequences(
    texts: TokenRuns, max_seq_length: int, truncation: str, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """The encoder's inputs for single texts, int32 [N, T]."""
    head, tail = kept_of_single(texts.lengths, max_seq_length, truncation)
    return _build([([texts.first(head), texts.last(tail)], 1)], tokenizer)


def kept_of_single(lengths: np.ndarray, max_seq_length: int, truncation: str) -> tuple[np.ndarray, np.ndarray]:
    """Number of tokens kept from head and tail of each text, int64 [N] each; of one that fits both are the whole."""
    length = np.minimum(lengths, max_seq_length - 2)
    head = np.minimum(length, head_room(max_seq_length - 2, truncation))
    return head, length - head


def pair_sequences(
    first: TokenRuns, second: TokenRuns, max_seq_length: int, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """The encoder's inputs for pairs of texts, int32 [N, T]."""
    between = tokenizer.pair_separators
    kept_a, kept_b = truncate_pair(first.lengths, second.lengths, max_seq_length - 2 - between)
    return _build([([first.first(np.asarray(kept_a))], between), ([second.first(np.asarray(kept_b))], 1)], tokenizer)


def first_tokens(
    word_tokens: TokenRuns, counts: np.ndarray, settings: TaskSettings
) -> tuple[TokenRuns, np.ndarray, np.ndarray, np.ndarray]:
    """The first tokens of words in the sequences of their rows, which have `counts` words, int64 [N].

    Returns the tokens of the rows; and row, word of the row and position, int64 [words] each, of the words whose first
    token is in the sequence.
    """
    splits = np.concatenate([word_tokens.starts, [len(word_tokens.ids)]])
    ends = np.cumsum(counts)
    row_tokens = TokenRuns(word_tokens.ids, splits[ends - counts], splits[ends] - splits[ends - counts])
    row, word = each_place(counts)
    head, tail = kept_of_single(row_tokens.lengths, settings.max_seq_length, settings.truncation)
    number = word_tokens.starts - row_tokens.starts[row]  # index of the first token in its row
    cut = (row_tokens.lengths - head - tail)[row]
    is_inside = (word_tokens.lengths > 0) & ((number < head[row]) | (number >= head[row] + cut))
    column = 1 + number - np.where(number < head[row], 0, cut)
    return row_tokens, row[is_inside], word[is_inside], column[is_inside]


def like_lengths(
    mask: np.ndarray, tokens: int = sys.maxsize, rows: int = sys.maxsize, step: int = 1
) -> list[tuple[np.ndarray, int]]:
    """Calls of rows of like length: the numbers of their rows, and the length of the longest.

    Longest rows come first. A call has at most so many `rows`, and `tokens` with padding, but at least one row. `mask`:
    int [N, ..., T], padded on the right; without rows there is one call. `step`: counted lengths are multiples of it.
    """
    lengths = np.maximum(1, mask.sum(-1).reshape(len(mask), -1).max(-1, initial=0))
    width = int(np.prod(mask.shape[1:-1]))
    order, first = np.argsort(-lengths, kind="stable"), 0
    calls: list[tuple[np.ndarray, int]] = []
    while first < len(order) or not calls:
        # The first call has the full length, so its outputs have the full shapes.
        length = int(lengths[order[first]]) if first else mask.shape[-1]
        count = max(1, min(rows, tokens // (-(-length // step) * step * width)))
        calls.append((order[first : first + count], length))
        first += count
    return calls


def joined(parts: Sequence[np.ndarray], calls: Sequence[tuple[np.ndarray, int]], at: np.ndarray | None = None) -> Any:
    """The outputs of `like_lengths`'s calls in the order of the rows, 0 beyond a call's length.

    With `at` bool [N, T] parts are the outputs of its places in their call, and the result is those of all places.
    """
    if at is not None:
        number = np.cumsum(at).reshape(at.shape) - 1
        places = [number[rows, :length][at[rows, :length]] for rows, length in calls]
        return np.concatenate(parts)[np.argsort(np.concatenate(places))]
    whole = np.zeros((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    for (rows, _), part in zip(calls, parts, strict=True):
        whole[(rows, *(slice(size) for size in part.shape[1:]))] = part
    return whole


def _build(segments: list[tuple[list[TokenRuns], int]], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """[CLS], then the runs of each segment followed by its number of [SEP]; padded to the longest sequence."""
    rows = len(segments[0][0][0].lengths)
    if rows == 1:  # as below, in a third of the time
        parts: list[Any] = [[tokenizer.cls_id]]
        sizes = [1] + [0] * (len(segments) - 1)
        for number, (runs, separators) in enumerate(segments):
            parts += [run.ids[run.starts[0] : run.starts[0] + run.lengths[0]] for run in runs]
            parts.append([tokenizer.sep_id] * separators)
            sizes[number] += sum(int(run.lengths[0]) for run in runs) + separators
        ids = np.concatenate(parts).astype(np.int32)[None]
        numbers = np.arange(len(segments), dtype=np.int32) * tokenizer.has_segments
        return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.repeat(numbers, sizes)[None]}
    total = 1 + sum(sum(run.lengths for run in runs) + separators for runs, separators in segments)
    length = int(np.max(total, initial=1))
    ids = np.full((rows, length), tokenizer.pad_id, np.int32)
    segment_ids = np.zeros((rows, length), np.int32)
    ids[:, 0] = tokenizer.cls_id
    column = np.ones(rows, np.int64)
    for number, (runs, separators) in enumerate(segments):
        begin = column
        for run in runs:
            row, within = each_place(run.lengths)
            ids[row, column[row] + within] = run.ids[run.starts[row] + within]
            column = column + run.lengths
        places = np.arange(length)
        ids[(places >= column[:, None]) & (places < column[:, None] + separators)] = tokenizer.sep_id
        column = column + separators
        if tokenizer.has_segments:
            segment_ids[(places >= begin[:, None]) & (places < column[:, None])] = number
    mask = np.arange(length) < column[:, None]
    return {"input_ids": ids, "input_mask": mask.astype(np.int32), "segment_ids": segment_ids}


def each_place(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and index in the row of every element of rows of these lengths: [2, 1] -> [0, 0, 1], [0, 1, 0]."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
