r"""An n-gram model in sorted arrays, read from an ARPA file, and the perplexity of documents under it.

    \data\
    ngram 1=4
    ngram 2=1

    \1-grams:
    -99	<s>	-0.3
    -0.9	</s>
    -1.2	<unk>
    -0.5	the	-0.2

    \2-grams:
    -0.1	<s> the

    \end\

Numbers are log10: p(the | <s>) = 10^-0.1. What is not listed is less by the backoff of its context, the second number:
p(the | the) = 10^(-0.2 - 0.5). Tabs or blanks separate; KenLM, SRILM and IRSTLM write such files.

An n-gram is the row of its first n - 1 words and the row of its last word, in one number. So only words are hashed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from bert_keras.errors import InputError
from components.corpus_gen.readers import cannot_be_read
from components.corpus_gen.words import words_and_marks
from components.io.compression import READ_ERRORS, decompressed
from components.io.shards import open_file

BEGIN, END, UNKNOWN = b"<s>", b"</s>", b"<unk>"
_HEAD_LINES, _LINES_AT_A_TIME = 1000, 1 << 16
_COUNT = re.compile(rb"ngram\s+(\d+)\s*=\s*(\d+)\s*")
_HALF, _MULTIPLIER = np.uint64(32), np.uint64(0x9E3779B97F4A7C15)  # an odd number, so that none is lost
_MAX_LOG10 = 300.0  # below the largest float


@functools.lru_cache(maxsize=1 << 17)
def hash_word(word: bytes) -> int:
    """64 bits of a word's BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def sentence(line: str) -> list[int]:
    """Hashes of the words and marks of a line, with those of its beginning and end."""
    return [hash_word(BEGIN), *map(hash_word, words_and_marks(line)), hash_word(END)]


@dataclasses.dataclass(frozen=True)
class Level:
    """The n-grams of one length, sorted by their keys; 16 bytes each, and 4 to 8 in memory for finding them.

    Attributes:
        keys: uint64 [R]: hashes of words; of longer n-grams `hash_pair(join(row of the first n - 1 words, row of the
            last word))`.
        log_probs: float32 [R], log10 of p(last word | words before it).
        backoffs: float32 [R], log10 of what an n-gram that continues this one and is not listed is multiplied by.
    """

    keys: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray

    @functools.cached_property
    def _firsts(self) -> tuple[np.uint64, np.ndarray]:
        """(shift, uint32 [2^bits + 1]): the first row by the leading bits of a key, which has about one row."""
        bits = len(self.keys).bit_length()
        shift = np.uint64(64 - bits)
        firsts = np.searchsorted(self.keys, np.arange(1 << bits, dtype=np.uint64) << shift)
        return shift, np.append(firsts, len(self.keys)).astype(np.uint32)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The row of each key, int64; -1 if it is not listed."""
        rows = np.full(len(keys), -1)
        if not len(self.keys):
            return rows
        shift, firsts = self._firsts
        # A binary search would miss the processor's cache at most of its steps: it takes four times as long.
        leading = (keys >> shift).astype(np.int64)
        places, ends = firsts[leading], firsts[leading + 1]
        left = np.flatnonzero(places < ends)
        while len(left):
            at = places[left]
            equal = self.keys[at] == keys[left]
            rows[left[equal]] = at[equal]
            places[left] += 1
            left = left[~equal & (at + 1 < ends[left])]
        return rows


def join(prefixes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Two rows in one number, uint64; none is -1."""
    return (prefixes.astype(np.uint64) << _HALF) | words.astype(np.uint64)


def hash_pair(pairs: np.ndarray) -> np.ndarray:
    """Numbers that are spread evenly, a different one for each number."""
    pairs = (pairs ^ (pairs >> _HALF)) * _MULTIPLIER
    return pairs ^ (pairs >> _HALF)


@dataclasses.dataclass(frozen=True)
class NgramModel:
    """The n-grams of 1, 2, ... words; no level is empty, and the words have BEGIN, END and UNKNOWN."""

    levels: Sequence[Level]

    def to_bytes(self) -> bytes:
        """The content of a file; the same bytes for the same model."""
        file = io.BytesIO()
        arrays = {
            f"{field.name}_{n}": getattr(level, field.name)
            for n, level in enumerate(self.levels)
            for field in dataclasses.fields(level)
        }
        np.savez(file, **arrays)
        return file.getvalue()

    @classmethod
    def read(cls, path: str) -> NgramModel:
        """Read a file with the content of `to_bytes`, local or in a store."""
        with open_file(path) as file, np.load(io.BytesIO(file.read()), allow_pickle=False) as arrays:
            names = [field.name for field in dataclasses.fields(Level)]
            return cls([Level(*(arrays[f"{name}_{n}"] for name in names)) for n in range(len(arrays) // len(names))])

    def log_probs(self, hashes: np.ndarray) -> np.ndarray:
        """Log10 of the probability of each word after those before it, float64 [words].

        Args:
            hashes: of words, uint64; an unknown word has the probability of UNKNOWN.
        """
        first, *longer = self.levels
        words = first.find(hashes)
        words[words < 0] = first.find(np.array([hash_word(UNKNOWN)], np.uint64))
        result, ending = first.log_probs[words].astype(np.float64), words
        # `ending` has the row of the n-gram that ends at each word, -1 without one.
        for level, shorter in zip(longer, self.levels, strict=False):
            follows = np.flatnonzero(ending[:-1] >= 0) + 1
            contexts = ending[follows - 1]
            rows = level.find(hash_pair(join(contexts, words[follows])))
            listed = rows >= 0
            result[follows] = np.where(listed, level.log_probs[rows], result[follows] + shorter.backoffs[contexts])
            ending = np.full(len(words), -1)
            ending[follows] = rows
        return result

    def perplexity(self, lines: Iterable[str]) -> float:
        """10^(-sum of log10 p / words, marks and line ends) of a document, each line apart, as CCNet has it."""
        hashes = np.fromiter(itertools.chain.from_iterable(map(sentence, lines)), np.uint64)
        scored = hashes != hash_word(BEGIN)
        mean = float(self.log_probs(hashes)[scored].sum()) / max(int(np.count_nonzero(scored)), 1)
        return 10.0 ** min(-mean, _MAX_LOG10)


def read_arpa(path: str) -> NgramModel:
    """Read an ARPA file, also compressed.

    Raises:
        InputError: it is not an ARPA file, cut short or without <unk>, or has a number that is no logarithm of a
            probability; names file and line.
    """
    try:
        with open_file(path) as file:
            return NgramModel(_levels(_Lines(decompressed(file, path), path)))
    except READ_ERRORS as error:
        raise cannot_be_read(path, error) from error


class _Lines:
    """The lines of a file, their number, and what is wrong with one."""

    def __init__(self, file: BinaryIO, path: str):
        self._lines, self._path, self._number = iter(file), path, 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self._number += 1
            if line.strip():
                yield line

    def wrong(self, what: str) -> InputError:
        remedy = "give a whole ARPA file, such as lmplz and ngram-count write (docs/corpus.md)"
        return InputError(f"{self._path}, line {self._number}: {what}; {remedy}")


def _levels(lines: _Lines) -> list[Level]:
    if b"\\data\\" not in map(bytes.strip, itertools.islice(lines, _HEAD_LINES)):
        raise lines.wrong("is not an ARPA file: it has no line \\data\\")
    counts: list[int] = []
    for line in lines:
        if not (match := _COUNT.fullmatch(line)):
            break
        counts.append(int(match[2]))
    levels: list[Level] = []
    for length, count in enumerate(counts, 1):
        if line.strip() != b"\\%d-grams:" % length:
            raise lines.wrong(rf"expected \{length}-grams:")
        keys, numbers = zip(*_entries(lines, levels, length, count), strict=True) if count else ((), ())
        order = np.argsort(merged := np.concatenate([np.zeros(0, np.uint64), *keys]))
        log_probs, backoffs = np.concatenate([np.zeros((0, 2), np.float32), *numbers])[order].T
        levels.append(Level(merged[order], log_probs.copy(), backoffs.copy()))
        if np.any(levels[-1].keys[1:] == levels[-1].keys[:-1]):
            raise lines.wrong(f"one of the {length}-grams before occurs twice")
        line = next(iter(lines), b"")
    if not counts or line.strip() != b"\\end\\":
        raise lines.wrong("expected \\end\\")
    required = np.array([*map(hash_word, (BEGIN, END, UNKNOWN))], np.uint64)
    if np.any(levels[0].find(required) < 0):
        raise lines.wrong("the model has no probability of <unk>, <s> or </s>")
    return [*itertools.takewhile(lambda level: len(level.keys), levels)]


def _entries(
    lines: _Lines, levels: Sequence[Level], length: int, count: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(keys [some], log_probs and backoffs [some, 2]) of the n-grams of a length, some at a time."""
    for start in range(0, count, _LINES_AT_A_TIME):
        numbers: list[tuple[float, float]] = []
        words: list[int] = []
        some = min(_LINES_AT_A_TIME, count - start)
        for line in itertools.islice(lines, some):
            fields = line.split()
            try:
                log_prob, backoff = float(fields[0]), float(fields[length + 1]) if len(fields) > length + 1 else 0.0
            except ValueError:
                break
            if not (length < len(fields) < length + 3 and log_prob <= 0 and math.isfinite(log_prob + backoff)):
                break
            numbers.append((log_prob, backoff))
            words += map(hash_word, fields[1 : length + 1])
        if len(numbers) < some:
            raise lines.wrong(f"expected {count:,} {length}-grams with log10 of their probability and backoff")
        keys = np.array(words, np.uint64).reshape(-1, length)
        if length > 1:
            rows = levels[0].find(keys.ravel()).reshape(keys.shape)
            prefix = rows[:, 0]
            for level, column in zip(levels[1:], rows[:, 1:-1].T, strict=False):
                if min(prefix.min(), column.min()) >= 0:
                    prefix = level.find(hash_pair(join(prefix, column)))
            if min(prefix.min(), rows.min()) < 0:
                raise lines.wrong(f"the beginning of one of the {length}-grams before is not listed")
            keys = hash_pair(join(prefix, rows[:, -1]))
        yield keys.ravel(), np.array(numbers, np.float32)
