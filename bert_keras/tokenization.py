"""What a task asks of a tokenizer; WordPiece's (`tokenizer`) and byte-level BPE's (`byte_bpe`) have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np


class EncodedTexts(NamedTuple):
    """Pieces of many texts, and where they come from.

    Attributes:
        ids: int32 [pieces]; those of texts[i] are ids[row_splits[i]:row_splits[i + 1]].
        row_splits: int64 [texts + 1].
        starts: int64 [pieces], the first character of each piece, counted in its text.
        ends: int64 [pieces], behind its last.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Tokenizer(Protocol):
    """A vocabulary, how it cuts texts, and how a model that has it reads one or two of them."""

    # How many separators stand between the two texts of a pair; one ends each sequence.
    pair_separators: int
    # Whether the second text of a pair, and the separator behind it, are of segment 1, not 0.
    has_segments: bool
    # Whether a word is cut the same way wherever it stands; of byte-level BPE its pieces hold the space before it.
    words_stand_alone: bool

    vocabulary: tuple[str, ...]
    # Their tokens: [CLS], [SEP], [PAD] of BERT; <s>, </s>, <pad> of RoBERTa.
    cls_id: int
    sep_id: int
    pad_id: int

    def encode(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids int32 of the pieces of many texts, without special tokens, and int64 [texts + 1] row splits."""

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """The same pieces, and the characters that each comes from."""

    def encode_words(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, of words that stand in a text with a space before each."""
