"""Drops passages that many documents have: licences, navigation, notices.

A passage is `window` consecutive units of a document, its lines or its sentences. C4 keeps one copy of any three
sentences (Raffel et al. 2020, section 2.2); CCNet compares lines, which are the paragraphs of web text (Wenzek et al.
2020, section 3.1). Our readers drop blank lines, so a paragraph of wrapped text is several lines: a window finds it if
it has as many. A document with fewer units than the window has no passages.

A passage that occurs in `min_count` documents stays in `keep` of them: those whose texts have the smallest hashes.
So it does not depend on the order of reading or on names of files; and a document that occurs twice is one document.

    window 2, min_count 2, keep 1       units   passages    stays
    document with the smaller hash      a b c   ab bc       a b c
    the other one                       x b c d xb bc cd    x d
"""

import hashlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

from components.corpus_gen.plain_text import sentences
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.words import hash_ngrams

LINES, SENTENCES, TOO_SHORT = "repeated_lines", "repeated_sentences", "repeated_too_short"
PASSAGES = "repeated_passages"
RULES = {
    PASSAGES: "different passages that several documents have",
    LINES: "lines of passages that repeat those of other documents (corpus.passages)",
    SENTENCES: "sentences of passages that repeat those of other documents (corpus.passages)",
    TOO_SHORT: "fewer characters than corpus.passages.min_characters without repeated passages",
}
# Passages that a table covers: 16 MB of a run of hashes, of about 80 MB of text.
TABLE_PASSAGES = 1 << 20
# A repeated passage: documents with a hash below `bound` keep it. Sorted by passage.
ROW = np.dtype([("passage", "<u8"), ("bound", "<u8")])
_HASH = np.dtype("<u8")


class Passages:
    """Drops repeated passages; a filter (`chain`) that is made only where `passages.unit` is not "none"."""

    def __init__(self, settings: CorpusSettings):
        self._settings, self._language = settings.passages, settings.language
        self.start(iter(()))

    def start(self, tables: Iterator[np.ndarray]) -> None:
        """Begin a unit of work; each of `tables`, arrays of ROW, is for the next TABLE_PASSAGES passages."""
        self._tables, self._covered = tables, TABLE_PASSAGES

    def units(self, lines: list[str]) -> list[str]:
        """The lines, or sentences with the blanks around them, that passages consist of."""
        return lines if self._settings.unit == "lines" else sentences(" ".join(lines), self._language)

    def hashes(self, units: list[str]) -> tuple[np.uint64, np.ndarray]:
        """Hash of the document, and hashes of its passages: uint64 [max(0, units - window + 1)]."""
        digests = b"".join(_digest(" ".join(unit.split()).encode()) for unit in units)
        (document,) = np.frombuffer(_digest(digests), _HASH)
        return document, hash_ngrams(np.frombuffer(digests, _HASH), self._settings.window)

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Drop repeated passages; a document that becomes shorter than `min_characters` is dropped."""
        units = self.units(lines)
        document, passages = self.hashes(units)
        if self._covered >= TABLE_PASSAGES:
            table = next(self._tables, np.zeros(0, ROW))
            self._passages, self._bounds = table["passage"].copy(), table["bound"].copy()
            self._covered = 0
        self._covered += len(passages)
        which, rows = find(self._passages, passages)
        which = which[self._bounds[rows] <= document]
        if not len(which):
            return lines, ""
        dropped = np.zeros(len(units), bool)
        for i in range(self._settings.window):
            dropped[which + i] = True
        found[f"repeated_{self._settings.unit}"] += int(dropped.sum())
        if self._settings.unit == "lines":
            lines = [line for line, drop in zip(lines, dropped.tolist(), strict=True) if not drop]
        else:
            text, start, pieces = "\n".join(lines), 0, []
            for unit, drop in zip(units, dropped.tolist(), strict=True):
                piece = text[start : start + len(unit)]
                start += len(unit)
                pieces.append(piece if not drop else "\n" * ("\n" in piece))
            lines = [stripped for line in "".join(pieces).split("\n") if (stripped := line.strip())]
        return lines, TOO_SHORT if sum(map(len, lines)) < self._settings.min_characters else ""


def find(known: np.ndarray, passages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the `passages` that are in `known`, sorted numbers, and their indices there."""
    if not len(known):
        return np.zeros(0, int), np.zeros(0, int)
    places = np.minimum(np.searchsorted(known, passages), len(known) - 1)
    which = np.flatnonzero(known[places] == passages)
    return which, places[which]


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH.itemsize).digest()
