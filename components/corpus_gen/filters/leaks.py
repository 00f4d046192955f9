"""Finds texts of evaluation sets in documents, and drops these documents.

A text of an evaluation set is a leak where a document has

- a run of `ngram_words` of its words (Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C), or
- all of its words in order but for a few changed ones: `changed_words` of a text of `ngram_words` words or more,
  proportionally fewer of a shorter one. A text of fewer than `min_words` words is not looked for.

Words are those of `components.corpus_gen.words`: case, accents, punctuation, white space and line ends do not matter.
The tokenization of the Penn Treebank, which SST-2 keeps ("do n't", "-lrb-"), does not matter either.

The second rule is exact: a text is cut into one block more than words may change, so one block at least is unchanged,
and each place that has the seed of a block (`_seed_words` of its words) is compared with the text word by word. Only
texts below (changed_words + 1) * ngram_words words need it: a longer one with so few changes has an unchanged run.

The launcher writes the table of hashes (`LeakTable`) to one file, and each worker loads it. It takes 10 bytes a word of
the long texts, and 14 a word and 42 a text of the short ones.
"""

import dataclasses
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from components.corpus_gen.settings import CorpusSettings, LeakSettings
from components.corpus_gen.words import hash_ngrams, hash_words
from components.io.shards import open_file

LEAK, PASSAGES = "leak", "leak_passages"
RULES = {
    LEAK: "has text of an evaluation set of corpus.decontaminate",
    PASSAGES: "passages with text of an evaluation set, also of documents that are dropped",
}
# `found` also counts the documents with text of each set, by its name.
IN_SET = "leak_in {}"

# "-LRB-": a bracket in the Penn Treebank's form.
_BRACKET = re.compile(r"-[lr][rcs]b-", re.IGNORECASE)
_MAX_FILTER_BITS = 26


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """An evaluation set with a unique name, its texts, and the number of rows whose texts cannot be read."""

    name: str
    sha256: str
    texts: Sequence[str]
    unread: int = 0


@dataclasses.dataclass(frozen=True)
class LeakTable:
    """Hashes of the texts of evaluation sets; the arrays are a file's content."""

    # {"name", "sha256", "texts", "not_searched", "unread"} of each set; not searched are texts below `min_words`,
    # unread are rows.
    sets: list[dict[str, Any]]
    ngrams: np.ndarray  # uint64 [G], sorted: hashes of the n-grams; a hash occurs once for each set that has it
    ngram_sets: np.ndarray  # uint16 [G], the set
    seeds: np.ndarray  # uint64 [S], sorted: hashes of the blocks' seeds
    seed_texts: np.ndarray  # uint32 [S], the text
    seed_places: np.ndarray  # uint32 [S], first word of the seed in its text
    words: np.ndarray  # uint32 [W], hashes of the words of the short texts
    starts: np.ndarray  # uint32 [T + 1], first word of each text in `words`
    text_sets: np.ndarray  # uint16 [T], the set
    allowed: np.ndarray  # uint16 [T], number of words that may differ

    def to_bytes(self) -> bytes:
        """The content of a file; the same bytes for the same table."""
        file = io.BytesIO()
        np.savez(file, **{**dataclasses.asdict(self), "sets": np.frombuffer(json.dumps(self.sets).encode(), np.uint8)})
        return file.getvalue()

    @classmethod
    def read(cls, path: str) -> "LeakTable":
        """Read a file with the content of `to_bytes`, local or in a store."""
        with open_file(path) as file, np.load(io.BytesIO(file.read()), allow_pickle=False) as arrays:
            return cls(**{**arrays, "sets": json.loads(arrays["sets"].tobytes())})


def make_table(sets: Iterable[EvaluationSet], settings: LeakSettings) -> LeakTable:
    """The table of evaluation sets; one of them is in memory at a time."""
    described: list[dict[str, Any]] = []
    ngrams: list[np.ndarray] = []
    short: list[np.ndarray] = []
    short_sets: list[int] = []
    for number, evaluation_set in enumerate(sets):
        texts: dict[bytes, np.ndarray] = {}
        for text in evaluation_set.texts:
            hashes = hash_words(_without_treebank(text))
            texts.setdefault(hashes.astype(np.uint32).tobytes(), hashes)
        searched = [hashes for hashes in texts.values() if len(hashes) >= settings.min_words]
        counts = {"texts": len(texts), "not_searched": len(texts) - len(searched), "unread": evaluation_set.unread}
        described.append({"name": evaluation_set.name, "sha256": evaluation_set.sha256, **counts})
        of_texts = [hash_ngrams(hashes, settings.ngram_words) for hashes in searched]
        ngrams.append(np.unique(np.concatenate([np.zeros(0, np.uint64), *of_texts])))
        # A longer text with `changed_words` changes has an unchanged run of `ngram_words`.
        longest = (settings.changed_words + 1) * settings.ngram_words
        short_texts = [hashes for hashes in searched if len(hashes) < longest]
        short += short_texts
        short_sets += [number] * len(short_texts)
    lengths = [len(hashes) for hashes in short]
    allowed = [_may_change(length, settings) for length in lengths]
    size = _seed_words(settings)
    seeds = [
        (seed, text, place)
        for text, hashes in enumerate(short)
        for seed, place in _seeds(hash_ngrams(hashes, size).tolist(), size, allowed[text])
    ]
    seeds.sort()
    all_ngrams = np.concatenate([np.zeros(0, np.uint64), *ngrams])
    ngram_sets = np.repeat(np.arange(len(ngrams)), [len(of_one_set) for of_one_set in ngrams])
    order = np.argsort(all_ngrams, kind="stable")
    columns = list(zip(*seeds, strict=True)) or [(), (), ()]
    return LeakTable(
        described,
        all_ngrams[order],
        ngram_sets[order].astype(np.uint16),
        np.array(columns[0], np.uint64),
        np.array(columns[1], np.uint32),
        np.array(columns[2], np.uint32),
        np.concatenate([np.zeros(0, np.uint64), *short]).astype(np.uint32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32),
        np.array(short_sets, np.uint16),
        np.array(allowed, np.uint16),
    )


class LeakFilter:
    """The filter of `LeakSettings`, with the path of a table that was made with the same settings."""

    def __init__(self, settings: LeakSettings, table: str):
        self._settings = settings
        self._table = LeakTable.read(table)
        self._ngrams, self._seeds = _Lookup(self._table.ngrams), _Lookup(self._table.seeds)

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Find leaks in a document; drops it (LEAK)."""
        if not (passages := self.find(hash_words(_without_treebank("\n".join(lines))))):
            return lines, ""
        found[PASSAGES] += len(passages)
        found.update(IN_SET.format(self._table.sets[number]["name"]) for number in {number for *_, number in passages})
        return lines, LEAK

    def find(self, hashes: np.ndarray) -> list[tuple[int, int, int]]:
        """Leaks among the words of a document, by their hashes, uint64: (first word, word after the last, set)."""
        table, size = self._table, self._settings.ngram_words
        places, rows = self._ngrams(hash_ngrams(hashes, size))
        pieces = [(places, places + size, table.ngram_sets[rows])]
        places, rows = self._seeds(hash_ngrams(hashes, _seed_words(self._settings)))
        texts = table.seed_texts[rows].astype(np.int64)
        firsts = places - table.seed_places[rows]
        lengths = table.starts[texts + 1].astype(np.int64) - table.starts[texts]
        inside = (firsts >= 0) & (firsts + lengths <= len(hashes))
        texts, firsts, lengths = texts[inside], firsts[inside], lengths[inside]
        if len(texts):
            # Word by word, all texts and places in one row.
            begins = np.cumsum(lengths) - lengths
            words = np.arange(lengths.sum()) - np.repeat(begins, lengths)
            expected = table.words[np.repeat(table.starts[texts], lengths) + words]
            differs = hashes[np.repeat(firsts, lengths) + words] != expected
            leaks = np.add.reduceat(differs, begins, dtype=np.int64) <= table.allowed[texts]
            pieces.append((firsts[leaks], (firsts + lengths)[leaks], table.text_sets[texts[leaks]]))
        starts, ends, sets = (np.concatenate(column).tolist() for column in zip(*pieces, strict=True))
        return _merged(sorted(zip(sets, starts, ends, strict=True)))


class _Lookup:
    """Finds the rows of sorted hashes that are equal to others; most others are not among them."""

    def __init__(self, hashes: np.ndarray):
        self._hashes = hashes
        bits = min(max(len(hashes), 1).bit_length() + 4, _MAX_FILTER_BITS)
        self._shift = np.uint64(64 - bits)
        # By the first bits: whether there is such a hash. The table of all bits is in the processor's cache.
        self._seen = np.zeros(1 << bits, bool)
        self._seen[hashes >> self._shift] = True

    def __call__(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index into `hashes`, row) of each equal pair, int64 each."""
        maybe = np.flatnonzero(self._seen[hashes >> self._shift])
        first = np.searchsorted(self._hashes, hashes[maybe], "left")
        counts = np.searchsorted(self._hashes, hashes[maybe], "right") - first
        rows = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        return np.repeat(maybe, counts), rows


def _merged(passages: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Sorted (set, start, end) -> (start, end, set), where those that overlap are one."""
    merged: list[tuple[int, int, int]] = []
    for number, start, end in passages:
        if merged and merged[-1][2] == number and start < merged[-1][1]:
            start, before, _ = merged.pop()
            end = max(before, end)
        merged.append((start, end, number))
    return merged


def _may_change(length: int, settings: LeakSettings) -> int:
    """Number of words that may differ in a text: so few that a run of three words, enough for a seed, is unchanged."""
    return min(settings.changed_words * min(length, settings.ngram_words) // settings.ngram_words, length // 3 - 1)


def _seed_words(settings: LeakSettings) -> int:
    """Number of words of a seed: those of the shortest block."""
    return min(
        length // (_may_change(length, settings) + 1)
        for length in range(settings.min_words, max(settings.min_words, settings.ngram_words) + 1)
    )


def _seeds(candidates: list[int], size: int, allowed: int) -> Iterator[tuple[int, int]]:
    """(seed, first word) of each block of a text, whose hashes of `size` words are `candidates`."""
    length, blocks = len(candidates) + size - 1, allowed + 1
    for block in range(blocks):
        place = block * length // blocks
        yield candidates[place], place


def _without_treebank(text: str) -> str:
    """Join "do n't" to "don't" and drop "-LRB-"; other clitics are words of their own with and without a blank."""
    return _BRACKET.sub(" ", text.replace(" n't", "n't"))


def described(settings: CorpusSettings) -> dict[str, list[dict[str, Any]]]:
    """`LeakTable.sets` for `corpus.json`, by their name there; empty without a table."""
    return {"decontaminated": LeakTable.read(settings.decontaminate[0]).sets} if settings.decontaminate else {}
