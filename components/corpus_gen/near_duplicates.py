"""Near duplicates among documents: MinHash, locality-sensitive hashing, as a Beam pipeline.

A document is the set of its shingles, runs of `shingle_words` words. Two documents are as similar as their sets
(Jaccard): common shingles / all shingles. In a random order of all shingles, two documents have the same first shingle
with just this probability (Broder 1997). A signature holds the number of the first one in each of MINHASHES orders; the
share of equal numbers estimates the similarity. Signatures are cut into bands, and only documents with an equal band
are compared (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, chapter 3).

All is done with integers: the same on every machine, in any order of documents.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
import zlib
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import unicodedata2

from bert_keras import unicode_tables
from bert_keras.tokenizer import basic_tokenize
from components.corpus_gen.settings import CleaningSettings

# The estimate's standard deviation is 0.036 at a similarity of 0.8.
MINHASHES = 128
_SIGNATURE = np.dtype("<u4")

# How surely two documents that are just similar enough come to be compared.
CANDIDATE_PROBABILITY = 0.99
# The lowest bits of the MinHashes are enough to compare documents (Li, Koenig 2010: b-bit minwise hashing): with four
# the estimate's standard deviation is 0.037, and an eighth of the signatures is shuffled.
_SKETCH_BITS = 4
# In a bucket of documents with an equal band, so many are compared with all others, then it is left: work stays
# proportional to the bucket. A group of any size that resembles one document takes one.
LEADERS = 16

_BATCH = 4096  # documents: enough to spread over the partitions, 6 MB of rows
_PARTITION_BITS = 10
_BLOCK = 2048  # shingles hashed at a time: a large document must not take MINHASHES times its size

# A document in a band: `id` in two numbers that sort as its bytes do.
_ROW = np.dtype([("band", "<u8"), ("id", ">u8", (2,)), ("sketch", "u1", (MINHASHES * _SKETCH_BITS // 8,))])
ID_BYTES = 16

# Fixed and arbitrary; not from a generator of random numbers, whose numbers may change with its version.
_RANDOM = np.frombuffer(hashlib.shake_256(b"near duplicates").digest(2 * MINHASHES * 4), "<u4").astype(np.uint32)
_FACTORS = (_RANDOM[:MINHASHES] | 1)[:, None]
_OFFSETS = _RANDOM[MINHASHES:][:, None]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)

# In ASCII what BERT's tokenizer isolates or takes for a blank, and what it deletes.
_ASCII_WORDS = bytes(ord(chr(c).lower()) if chr(c).isalnum() else ord(" ") for c in range(256))
_ASCII_DELETED = bytes(c for c in (*range(32), 127) if c not in b"\t\n\r")
# Scripts without blanks between words: kana, and those of South East Asia (line breaking class SA).
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3040-\u30ff\u31f0-\u31ff"
    "\ua9e0-\ua9ff\uaa60-\uaadf\U00011700-\U0001174f]"
)


def bands_and_rows(similarity: float) -> tuple[int, int]:
    """How many bands of how many MinHashes are compared, for documents of this similarity and more.

    Documents of similarity s are equal in one of b bands of r rows with probability 1 - (1 - s^r)^b. Taken are the
    most rows, that is the fewest needless comparisons, and then the fewest bands, that give CANDIDATE_PROBABILITY:

        similarity   bands   rows
        0.5             35      3
        0.7             17      4
        0.8             16      6
        0.9             11     10

    Candidates are compared by their estimated similarity. In all, one of two documents is dropped with the probability

        similarity  0.6   0.7   0.75  0.8   0.85  0.9   0.95
        dropped     0.00  0.01  0.12  0.55  0.95  1.00  1.00

    if `near_duplicate_similarity` is 0.8: binomial, as is the number of equal MinHashes.
    """
    for rows in range(MINHASHES, 0, -1):
        band_is_equal = similarity**rows
        if 1 - (1 - band_is_equal) ** (MINHASHES // rows) >= CANDIDATE_PROBABILITY:
            return math.ceil(math.log(1 - CANDIDATE_PROBABILITY) / math.log1p(-band_is_equal)), rows
    # Too small a similarity: every MinHash is a band.
    return MINHASHES, 1


def signature(segments: list[str], settings: CleaningSettings) -> bytes:
    """MINHASHES 32-bit numbers of a document; how many of two documents' are equal estimates their similarity.

    Words are BERT's basic tokens (uncased: case and accents do not count) without punctuation. Each Chinese character
    is a word to BERT; here, so is each letter of other scripts that have no blanks between words. Where segments end
    does not count. A document of fewer than `shingle_words` words is one shingle.
    """
    words = _words("\n".join(segments))
    hashes = np.fromiter(map(zlib.crc32, words), np.uint64, len(words))
    length = min(settings.shingle_words, len(hashes))
    count = len(hashes) - length + 1
    shingles = _combine(hashes[i : i + count] for i in range(length)) if length else np.zeros(1, np.uint64)
    numbers = (shingles >> _HALF).astype(np.uint32)
    minima = np.full(MINHASHES, 0xFFFFFFFF, np.uint32)
    for start in range(0, count, _BLOCK):
        np.minimum(minima, (_FACTORS * numbers[start : start + _BLOCK] + _OFFSETS).min(1), out=minima)
    return minima.astype(_SIGNATURE).tobytes()


class FindNearDuplicates(beam.PTransform):
    """(document_id bytes[16], signature) pairs -> ids of documents to drop, each once.

    Of a group of documents that resemble each other the smallest id is left. Exactly: in every bucket of documents with
    an equal band the smallest id leads; those that resemble it are dropped; the smallest of the rest leads, up to
    LEADERS times. So of two near duplicates that were compared at most one is left. Where a < b < c, and b resembles
    both but a does not resemble c, c may be left beside a. A document that occurs twice is no duplicate of itself.

    A document costs `bands` rows of 88 bytes in the shuffle: 1.4 kB at a similarity of 0.8. A worker holds one in
    2 ** _PARTITION_BITS of them at a time.
    """

    def __init__(self, settings: CleaningSettings):
        super().__init__()
        self._similarity = settings.near_duplicate_similarity

    def expand(self, signatures):
        return (
            signatures
            | "Batch" >> beam.BatchElements(min_batch_size=_BATCH, max_batch_size=_BATCH)
            | "Bands" >> beam.FlatMap(_bands, *bands_and_rows(self._similarity))
            | "ByPartition" >> beam.GroupByKey()
            | "Rows" >> beam.Values()
            | "Compare" >> beam.FlatMap(_compare, self._similarity)
            | "Once" >> beam.Distinct()
        )


def _words(text: str) -> list[bytes]:
    if text.isascii():
        # What the other branch gives, several times as fast.
        return text.encode("ascii").translate(_ASCII_WORDS, _ASCII_DELETED).split()
    spaced = _UNSPACED.sub(r" \g<0> ", text)
    punctuation = _punctuation()
    words = [word for word in basic_tokenize(spaced, lower_case=True) if word not in punctuation]
    return [word.encode("utf-8", "surrogatepass") for word in words]


@functools.cache
def _punctuation() -> frozenset[str]:
    """What BERT's tokenizer isolates, less the ideographs."""
    kind = unicode_tables.fold_table(True).kind
    isolated = map(chr, np.flatnonzero(kind & unicode_tables.ISOLATED).tolist())
    return frozenset(char for char in isolated if unicodedata2.category(char)[0] in "PS")


def _combine(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Arrays of unsigned integers, of one shape -> uint64 of this shape: a hash of their numbers in this order."""
    first, *others = columns
    combined = first.astype(np.uint64)
    for column in others:
        combined = combined * _MULTIPLIER + column
    combined ^= combined >> _HALF
    combined *= _MULTIPLIER
    return combined ^ (combined >> _HALF)


def _bands(documents: list[tuple[bytes, bytes]], bands: int, rows: int) -> Iterator[tuple[int, bytes]]:
    """(partition, _ROWs) pairs: a row for each document and band; equal bands are in the same partition."""
    ids, signatures = zip(*documents, strict=True)
    minhashes = np.frombuffer(b"".join(signatures), _SIGNATURE).reshape(len(documents), MINHASHES)
    low = (minhashes & ((1 << _SKETCH_BITS) - 1)).astype(np.uint8)
    in_bands = minhashes[:, : bands * rows].reshape(len(documents), bands, rows)
    found = np.empty((len(documents), bands), _ROW)
    found["band"] = _combine(in_bands[:, :, row] for row in range(rows))
    found["id"] = np.frombuffer(b"".join(ids), _ROW["id"].base).reshape(len(documents), 1, 2)
    found["sketch"] = (low[:, 0::2] << _SKETCH_BITS | low[:, 1::2])[:, None]
    found = found.reshape(-1)
    partitions = (found["band"] >> np.uint64(64 - _PARTITION_BITS)).astype(np.int64)
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    for number, of_partition in zip(numbers.tolist(), np.split(found[order], starts[1:]), strict=True):
        yield number, of_partition.tobytes()


def _compare(blocks: Iterable[bytes], similarity: float) -> Iterator[bytes]:
    """Ids of documents to drop, given the _ROWs of a partition."""
    rows = np.frombuffer(b"".join(blocks), _ROW)
    rows = rows[np.lexsort((rows["id"][:, 1], rows["id"][:, 0], rows["band"]))]
    again = (rows["band"][1:] == rows["band"][:-1]) & (rows["id"][1:] == rows["id"][:-1]).all(1)
    rows = rows[np.concatenate([[True], ~again])]
    # Unequal MinHashes have equal sketches by chance, one in 16.
    chance = 2.0**-_SKETCH_BITS
    least_equal = math.ceil(MINHASHES * (similarity + (1 - similarity) * chance))
    dropped = []
    for _ in range(LEADERS):
        leads = np.concatenate([[True], rows["band"][1:] != rows["band"][:-1]])
        leader = np.flatnonzero(leads)[np.cumsum(leads) - 1]
        others = np.flatnonzero(~leads)
        near = _equal(rows["sketch"][others], rows["sketch"][leader[others]]) >= least_equal
        dropped.append(rows["id"][others[near]])
        rows = rows[others[~near]]
        if not len(rows):
            break
    for identity in np.unique(np.concatenate(dropped), axis=0):
        yield identity.astype(">u8").tobytes()


def _equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Sketches uint8 [N, bytes] twice -> int64 [N], how many of their MinHashes are equal."""
    differing = one ^ other
    return ((differing & 0x0F) == 0).sum(1) + ((differing & 0xF0) == 0).sum(1)
