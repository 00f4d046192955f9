"""Offsets: the source characters of each wordpiece.

"Café-s" is cut to caf, ##e, -, s. If é is one character the offsets are 0-3, 3-4, 4-5, 5-6; if it is an e and an
accent, 0-3, 3-5, 5-6, 6-7: a stripped accent belongs to the letter before it. Other deleted characters (controls,
format characters) belong to no token, but may lie between the start and end of one. A character with several
replacements (a Hangul syllable becomes its letters) may belong to several tokens.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from bert_keras.tokenizers import unicode_tables as ut
from bert_keras.tokenizers.normalize import chunks_of, normalize, split_at_spaces, to_code_points
from bert_keras.tokenizers.protocol import EncodedTexts

SUFFIX_INDICATOR = "##"


class WordpieceTokenizer(Protocol):
    """The part of `bert_keras.tokenizers.wordpiece.BertTokenizer` used here."""

    vocabulary: tuple[str, ...]
    normalization: ut.Normalization
    unk_id: int

    def wordpiece_ids(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]: ...


def token_lengths(vocabulary: Sequence[str]) -> np.ndarray:
    """int64 [V]: the number of characters of a normalized word that each token covers (not valid for [UNK])."""
    return np.array([len(token.removeprefix(SUFFIX_INDICATOR)) for token in vocabulary], np.int64)


@functools.cache
def stripped_marks() -> np.ndarray:
    """bool [0x110000]: characters deleted by stripping accents, not by cleaning, which deletes them when cased too."""
    uncased, cased = (ut.fold_table(lower_case).kind & ut.LENGTH_MASK for lower_case in (True, False))
    return (uncased == 0) & (cased != 0)


def encode_with_offsets(tokenizer: WordpieceTokenizer, texts: Iterable[str]) -> EncodedTexts:
    """`tokenizer.encode(texts)` with the source characters of each token; TypeError if one is not a str."""
    lengths = token_lengths(tokenizer.vocabulary)
    empty = np.zeros(0, np.int64)
    parts: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int32), np.zeros(1, np.int64), empty, empty)]
    parts += [_encode_chunk(tokenizer, chunk, lengths) for chunk in chunks_of(texts)]
    ids, counts, starts, ends = map(np.concatenate, zip(*parts, strict=True))
    return EncodedTexts(ids, np.cumsum(counts), starts, ends)


def _encode_chunk(tokenizer: WordpieceTokenizer, texts: Sequence[str], lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """(ids, number of tokens of each text, starts, ends) of some texts."""
    table = ut.fold_table(**tokenizer.normalization.fields)
    code_points, encoding = to_code_points(texts)
    normalized = normalize(code_points, table, with_source=True)
    words, word_splits = split_at_spaces(texts, normalized, encoding)
    ids, token_splits = tokenizer.wordpiece_ids(words)

    # Letters are all characters but spaces; tokens in order use them up.
    is_letter = normalized.output != ut.SPACE
    source = normalized.source[is_letter]  # type: ignore[index]
    word_lengths = np.fromiter(map(len, words), np.int64, len(words))
    whole_word = np.repeat(word_lengths, np.diff(token_splits))
    letters = np.where(ids == tokenizer.unk_id, whole_word, lengths[ids])
    first_letters = np.cumsum(letters) - letters

    last = np.arange(1, len(code_points) + 1)  # [N], end of each character and of the accents stripped off it
    if tokenizer.normalization.strip_accents:
        marks = np.flatnonzero(stripped_marks()[code_points])
        kept = np.flatnonzero(np.diff(normalized.ends, prepend=0) > 0)
        before = np.searchsorted(kept, marks) - 1
        marks, before = marks[before >= 0], before[before >= 0]
        np.maximum.at(last, kept[before], marks + 1)
    text_starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    counts = np.diff(token_splits[word_splits])
    offset = np.repeat(text_starts[:-1], counts)
    if not len(ids):
        return ids, counts, offset, offset
    starts = np.minimum.reduceat(source, first_letters) - offset
    ends = np.maximum.reduceat(last[source], first_letters) - offset
    return ids, counts, starts, ends
