"""Which characters of a text each word piece comes from.

"Café-s" is cut to caf, ##e, -, s; if é is one character they come from the characters 0-3, 3-4, 4-5, 5-6, and if it is
an e and an accent, from 0-3, 3-5, 5-6, 6-7: an accent that folding strips belongs to the letter before it. Others that
folding deletes (controls, format characters) belong to no piece, but may lie between the ends of one. A character
that folding replaces by several (a Hangul syllable by its letters) may belong to several pieces.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from bert_keras import unicode_tables as ut
from bert_keras.tokenization import EncodedTexts
from bert_keras.tokenizer import SUFFIX_INDICATOR, BertTokenizer, chunks_of, fold, lay_out, words_of


def piece_lengths(vocabulary: Sequence[str]) -> np.ndarray:
    """int64 [V]: the characters of a word, folded, that each token stands for (an unknown word's are not known)."""
    return np.array([len(token.removeprefix(SUFFIX_INDICATOR)) for token in vocabulary], np.int64)


@functools.cache
def stripped_marks() -> np.ndarray:
    """bool [0x110000]: what stripping accents deletes, rather than cleaning, which deletes it cased too."""
    uncased, cased = (ut.fold_table(lower_case).kind & ut.LENGTH_MASK for lower_case in (True, False))
    return (uncased == 0) & (cased != 0)


def encode_with_offsets(tokenizer: BertTokenizer, texts: Iterable[str]) -> EncodedTexts:
    """`tokenizer.encode(texts)`, and the characters that each piece comes from.

    Raises:
        TypeError: something in `texts` is no str.
    """
    if isinstance(texts, str):
        raise TypeError("encode_with_offsets takes an iterable of str, not one str; use encode_with_offsets(t, [text])")
    lengths = piece_lengths(tokenizer.vocabulary)
    empty = np.zeros(0, np.int64)
    parts: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int32), np.zeros(1, np.int64), empty, empty)]
    parts += [_encode_chunk(tokenizer, chunk, lengths) for chunk in chunks_of(texts)]
    ids, counts, starts, ends = map(np.concatenate, zip(*parts, strict=True))
    return EncodedTexts(ids, np.cumsum(counts), starts, ends)


def _encode_chunk(tokenizer: BertTokenizer, texts: Sequence[str], lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """(ids, pieces of each text, starts, ends) of some texts."""
    table = ut.fold_table(tokenizer.lower_case)
    code_points, encoding = lay_out(texts)
    folded = fold(code_points, table, with_source=True)
    words, word_splits = words_of(texts, folded, encoding)
    ids, piece_splits = tokenizer.pieces_of(words)

    # Letters are what is no space; pieces in order take them up, none left over.
    is_letter = folded.output != ut.SPACE
    source = folded.source[is_letter]  # type: ignore[index]
    word_lengths = np.fromiter(map(len, words), np.int64, len(words))
    of_word = np.repeat(word_lengths, np.diff(piece_splits))
    taken = np.where(ids == tokenizer.unk_id, of_word, lengths[ids])
    first_letters = np.cumsum(taken) - taken

    last = np.arange(1, len(code_points) + 1)  # [N], behind each character and the accents stripped off it
    if tokenizer.lower_case:
        _add_stripped_marks(last, code_points, folded.ends)
    text_starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
    counts = np.diff(piece_splits[word_splits])
    offset = np.repeat(text_starts[:-1], counts)
    if not len(ids):
        return ids, counts, offset, offset
    starts = np.minimum.reduceat(source, first_letters) - offset
    ends = np.maximum.reduceat(last[source], first_letters) - offset
    return ids, counts, starts, ends


def _add_stripped_marks(last: np.ndarray, code_points: np.ndarray, ends: np.ndarray) -> None:
    """Moves `last` int64 [N] of a character behind the accents that follow it and were stripped, in place."""
    marks = np.flatnonzero(stripped_marks()[code_points])
    kept = np.flatnonzero(np.diff(ends, prepend=0) > 0)
    before = np.searchsorted(kept, marks) - 1
    marks, before = marks[before >= 0], before[before >= 0]
    np.maximum.at(last, kept[before], marks + 1)
