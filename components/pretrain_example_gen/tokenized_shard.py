"""Tokenized documents of one shard: the unit of work, of memory and of randomness."""

import dataclasses
import hashlib
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_keras.tokenizers.protocol import Tokenizer


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Tokenized documents of one shard. No segment and no document is empty.

    Segments (sentences) of a document are contiguous, so a run of segments is a range of tokens, and nothing is copied
    until examples are filled.
    """

    tokens: np.ndarray  # int32 [tokens], below 2**31 of them, since instances store positions as int32
    segment_splits: np.ndarray  # int64 [segments + 1]; segment s is tokens[segment_splits[s]:segment_splits[s + 1]]
    document_splits: np.ndarray  # int64 [documents + 1]; likewise from documents to segments

    @classmethod
    def from_documents(
        cls, documents: Iterable[Sequence[str]], tokenizer: Tokenizer, separated: bool = True
    ) -> "Bucket":
        """Tokenize documents (sequences of segments); omits segments and documents without tokens, as the original.

        Documents are consumed while tokenizing, so little of their text is in memory at a time. Unless segments are
        `separated` or words stand alone, a segment has the space before it that running text has: none after a
        full-width sign, as in Chinese.
        """
        segment_counts: list[int] = []

        def segments() -> Iterator[str]:
            for document in documents:
                segment_counts.append(len(document))
                spaced = not separated and not tokenizer.words_stand_alone
                before = ["", *document[:-1]] if spaced else itertools.repeat("")
                for last, segment in zip(before, document, strict=False):
                    yield segment if unicodedata.east_asian_width(last[-1:] or "字") in "WF" else f" {segment}"

        tokens, splits = tokenizer.encode(segments())
        lengths = np.diff(splits)
        document_of_segment = np.repeat(np.arange(len(segment_counts)), segment_counts)
        used = np.bincount(document_of_segment[lengths > 0])
        return cls(tokens, _splits(lengths[lengths > 0]), _splits(used[used > 0]))

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.document_splits) - 1

    @property
    def num_segments(self) -> int:
        """Number of segments."""
        return len(self.segment_splits) - 1

    def cut_segments(self, longest: int) -> "tuple[Bucket, int]":
        """The same tokens with segments cut to at most `longest`, and the number of segments that were cut."""
        lengths = np.diff(self.segment_splits)
        pieces = -(-lengths // longest)
        last_of_segment = np.cumsum(pieces) - 1
        cut_lengths = np.full(pieces.sum(), longest)
        cut_lengths[last_of_segment] = lengths - (pieces - 1) * longest
        splits = np.append(0, np.cumsum(pieces))
        return Bucket(self.tokens, _splits(cut_lengths), splits[self.document_splits]), int((pieces > 1).sum())

    def with_separators(self, sep_id: int, *, across_documents: bool) -> "Bucket":
        """Insert a separator at the end of each segment (</s> of fairseq's `append_eos`).

        `across_documents` merges all documents into one, with another separator as a segment of its own between them,
        for the blank line between documents in fairseq's text files.
        """
        tokens = np.insert(self.tokens, self.segment_splits[1:], sep_id).astype(np.int32, copy=False)
        lengths = np.diff(self.segment_splits) + 1
        with_separators = Bucket(tokens, _splits(lengths), self.document_splits)
        if not across_documents or self.num_documents < 2:
            return with_separators
        breaks = self.document_splits[1:-1]
        return Bucket(
            np.insert(tokens, with_separators.segment_splits[breaks], sep_id).astype(np.int32, copy=False),
            _splits(np.insert(lengths, breaks, 1)),
            np.array([0, len(lengths) + len(breaks)]),
        )


def _splits(lengths: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(lengths, dtype=np.int64))


def random_stream(*key: object) -> np.random.Generator:
    """Random generator for a key, the same in every process: random_stream(12345, "train", "pass", 0)."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))
