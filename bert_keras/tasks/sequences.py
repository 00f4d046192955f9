"""Texts -> the encoder's inputs, as google-research/bert's run_classifier.py lays them out (FACTS D7).

    [CLS] text [SEP]               segments 0 0 0
    [CLS] text [SEP] pair [SEP]    segments 0 0 0 1 1

Shapes: N sequences, T tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_keras.tokenizer import BertTokenizer
from bert_keras.truncation import head_room, truncate_pair


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of pieces: run i is `ids[starts[i] : starts[i] + lengths[i]]`.

    Attributes:
        ids: int32, of all texts.
        starts, lengths: int64 [N].
    """

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, tokenizer: BertTokenizer, texts: Sequence[str]) -> Pieces:
        """The pieces of texts."""
        ids, splits = tokenizer.encode(texts)
        return cls(ids, splits[:-1], np.diff(splits))

    def first(self, counts: np.ndarray) -> Pieces:
        """The first `counts` int [N] of each run."""
        return Pieces(self.ids, self.starts, counts)

    def last(self, counts: np.ndarray) -> Pieces:
        """The last `counts` int [N] of each run."""
        return Pieces(self.ids, self.starts + self.lengths - counts, counts)

    def __getitem__(self, runs: np.ndarray) -> Pieces:
        """The runs of these numbers."""
        return Pieces(self.ids, self.starts[runs], self.lengths[runs])


def single_sequences(
    pieces: Pieces, max_seq_length: int, truncation: str, tokenizer: BertTokenizer
) -> dict[str, np.ndarray]:
    """The encoder's inputs for single texts, int32 [N, T]."""
    head, tail = kept_of_single(pieces.lengths, max_seq_length, truncation)
    return _laid_out([[pieces.first(head), pieces.last(tail)]], tokenizer)


def kept_of_single(lengths: np.ndarray, max_seq_length: int, truncation: str) -> tuple[np.ndarray, np.ndarray]:
    """How many pieces of the head and tail of each text are in its sequence, int64 [N] each.

    A text that fits is kept whole, whichever end its pieces count to.
    """
    kept = np.minimum(lengths, max_seq_length - 2)
    head = np.minimum(kept, head_room(max_seq_length - 2, truncation))
    return head, kept - head


def pair_sequences(
    first: Pieces, second: Pieces, max_seq_length: int, tokenizer: BertTokenizer
) -> dict[str, np.ndarray]:
    """The encoder's inputs for pairs of texts, int32 [N, T]."""
    kept_a, kept_b = truncate_pair(first.lengths, second.lengths, max_seq_length - 3)
    return _laid_out([[first.first(np.asarray(kept_a))], [second.first(np.asarray(kept_b))]], tokenizer)


def _laid_out(segments: list[list[Pieces]], tokenizer: BertTokenizer) -> dict[str, np.ndarray]:
    """[CLS], and the runs of each segment with a [SEP] behind; no longer than the longest of the sequences."""
    rows = len(segments[0][0].lengths)
    total = np.sum([run.lengths for segment in segments for run in segment], axis=0) + 1 + len(segments)
    length = int(np.max(total, initial=1))
    ids = np.full((rows, length), tokenizer.pad_id, np.int32)
    segment_ids = np.zeros((rows, length), np.int32)
    ids[:, 0] = tokenizer.cls_id
    column = np.ones(rows, np.int64)
    for number, segment in enumerate(segments):
        begin = column
        for run in segment:
            row, within = _each(run.lengths)
            ids[row, column[row] + within] = run.ids[run.starts[row] + within]
            column = column + run.lengths
        ids[np.arange(rows), column] = tokenizer.sep_id
        column = column + 1
        places = np.arange(length)
        segment_ids[(places >= begin[:, None]) & (places < column[:, None])] = number
    mask = np.arange(length) < column[:, None]
    return {"input_ids": ids, "input_mask": mask.astype(np.int32), "segment_ids": segment_ids}


def _each(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and number within it of every element of rows of these lengths: [2, 1] -> [0, 0, 1], [0, 1, 0]."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
