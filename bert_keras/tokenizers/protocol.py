"""The interface of tokenizers to tasks, and what byte-level BPE and SentencePiece share of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

WORDPIECE, BYTE_BPE, SENTENCEPIECE = "wordpiece", "byte_bpe", "sentencepiece"
# The algorithms in messages.
TITLES = {WORDPIECE: "word pieces", BYTE_BPE: "byte-level BPE", SENTENCEPIECE: "SentencePiece"}

_BATCH_TEXTS = 1000


class EncodedTexts(NamedTuple):
    """Tokens of many texts with their offsets.

    Attributes:
        ids: int32 [tokens]; those of texts[i] are ids[row_splits[i]:row_splits[i + 1]].
        row_splits: int64 [texts + 1].
        starts: int64 [tokens], first character of each token, counted in its text.
        ends: int64 [tokens], one past its last character.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Tokenizer(Protocol):
    """A vocabulary, its tokenization, and the format of sequences for models that use it."""

    # Its algorithm, as `vocab_spec.json` names it.
    algorithm: str
    # Number of separators between the two texts of a pair; one separator ends each sequence.
    pair_separators: int
    # The second text of a pair and the separator after it have segment id 1, not 0.
    has_segments: bool
    # The tokens of a word do not depend on its context; in byte-level BPE they include the space before it.
    words_stand_alone: bool

    vocabulary: tuple[str, ...]
    # BERT's [CLS], [SEP], [PAD], [UNK], [MASK]; RoBERTa's <s>, </s>, <pad>, <unk>, <mask>.
    cls_id: int
    sep_id: int
    pad_id: int
    unk_id: int
    mask_id: int

    @property
    def is_suffix(self) -> np.ndarray:
        """Bool [V]: the token continues the word before it."""

    @property
    def at_begin(self) -> np.ndarray | None:
        """Int32 [V]: a text's first token for each that follows a space, "cat" for "Ġcat"; None: words stand alone."""

    @property
    def token_texts(self) -> Sequence[str]:
        """Text of each token as a reader sees it, with the space before it: " cat" for "Ġcat"; "##s" as it is."""

    def encode(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids int32 of many texts, without special tokens, and int64 [texts + 1] row splits."""

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """`encode(texts)` with the source characters of each token."""

    def encode_words(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """`encode` of words with a space before each."""


class BatchTokenizer:
    """`encode` and `tokenize` by a library that encodes lists of texts."""

    vocabulary: tuple[str, ...]

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        """The token ids of each text."""
        raise NotImplementedError

    def tokenize(self, text: str) -> list[str]:
        """The tokens of one text."""
        return [self.vocabulary[i] for i in self.encode([text])[0]]

    def encode(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of many texts, without special tokens.

        Returns:
            ids: int32 [tokens]; those of texts[i] are ids[row_splits[i]:row_splits[i + 1]].
            row_splits: int64 [texts + 1].

        Raises:
            TypeError: `texts` is one str.
        """
        ids, lengths = [np.zeros(0, np.int32)], [0]
        for batch in batches_of(texts):
            for row in self._ids_of(batch):
                ids.append(np.array(row, np.int32))
                lengths.append(len(row))
        return np.concatenate(ids), np.cumsum(lengths, dtype=np.int64)


def batches_of(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists, as the libraries take them: UTF-8 has no lone surrogates."""
    if isinstance(texts, str):
        raise TypeError("encode takes an iterable of str, not one str; use encode([text])")
    clean = (text.encode("utf-8", "replace").decode() for text in texts)
    while batch := list(itertools.islice(clean, _BATCH_TEXTS)):
        yield batch
