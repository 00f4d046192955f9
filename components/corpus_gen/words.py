"""The words of a text without case, accents and punctuation, and hashes of runs of them (shingles, n-grams).

All arithmetic is on integers, so the hashes are the same on every machine.
"""

import functools
import zlib
from collections.abc import Iterable

import numpy as np
import unicodedata2

from bert_keras.tokenizers import unicode_tables
from bert_keras.tokenizers.normalize import basic_tokenize, space_letters

# For ASCII: characters that BERT's tokenizer isolates or treats as blanks, and characters that it removes.
_ASCII_WORDS = bytes(ord(chr(c).lower()) if chr(c).isalnum() else ord(" ") for c in range(256))
_ASCII_DELETED = bytes(c for c in (*range(32), 127) if c not in b"\t\n\r")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def words_of(text: str) -> list[bytes]:
    """Words of a text: BERT's basic tokens (uncased: case and accents are ignored) without punctuation, in UTF-8.

    As each Chinese character is a word for BERT, so here is each letter of other scripts without blanks between words.
    A line end separates words like a blank.
    """
    if text.isascii():
        # Same result as the other branch, several times as fast.
        return text.encode("ascii").translate(_ASCII_WORDS, _ASCII_DELETED).split()
    spaced = space_letters(text)
    punctuation = _punctuation()
    words = [word for word in basic_tokenize(spaced, lower_case=True) if word not in punctuation]
    return [word.encode("utf-8", "surrogatepass") for word in words]


def hash_words(text: str) -> np.ndarray:
    """Hashes of 32 bits of the words of a text, uint64 [words]."""
    words = words_of(text)
    return np.fromiter(map(zlib.crc32, words), np.uint64, len(words))


def hash_ngrams(hashes: np.ndarray, length: int) -> np.ndarray:
    """Hashes of each run of `length` words, uint64 [words - length + 1]; empty if there are fewer words."""
    count = max(len(hashes) - length + 1, 0)
    return combine(hashes[i : i + count] for i in range(length))


def combine(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Combine arrays of unsigned integers of equal shape to uint64 hashes of that shape; the order matters."""
    first, *others = columns
    combined = first.astype(np.uint64)
    for column in others:
        combined = combined * _MULTIPLIER + column
    combined ^= combined >> _HALF
    combined *= _MULTIPLIER
    return combined ^ (combined >> _HALF)


@functools.cache
def _punctuation() -> frozenset[str]:
    """Characters that BERT's tokenizer isolates, except ideographs."""
    kind = unicode_tables.fold_table(True).kind
    isolated = map(chr, np.flatnonzero(kind & unicode_tables.ISOLATED).tolist())
    return frozenset(char for char in isolated if unicodedata2.category(char)[0] in "PS")
