"""Finds near duplicates among documents with MinHash and locality-sensitive hashing, as a Beam pipeline.

A document is represented by the set of its shingles, runs of `shingle_words` words. The similarity of two documents is
the Jaccard similarity of their sets: common shingles / all shingles. Under a random order of all shingles it is the
probability that both sets have the same first shingle (Broder 1997). A signature holds the hash of the first shingle
for each of MINHASHES orders; the share of equal hashes estimates the similarity. Signatures are divided into bands, and
only documents with an equal band are compared (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, chapter 3).

All arithmetic is on integers, so results are the same on every machine and for any order of documents.

The bands of all documents take several times the memory of a short text, so they are sorted on disk, and Beam
transports names:

    runs     a row for each band of the documents that one worker has read, up to RUN_BYTES, sorted by band
    tables   of a partition of the bands: the ids of documents to drop, by the slots of the documents' own runs
"""

from __future__ import annotations  # Beam would take them for its types

import hashlib
import math
from collections.abc import Iterable

import apache_beam as beam
import numpy as np

from components.corpus_gen.settings import CleaningSettings, CorpusSettings
from components.corpus_gen.sorted_runs import (
    SLOTS,
    hash_slot,
    partition_count,
    partition_range,
    read_rows,
    write_by_hash,
    write_rows,
)
from components.corpus_gen.words import combine, hash_ngrams, hash_words

# The standard deviation of the estimate is 0.036 at a similarity of 0.8.
MINHASHES = 128
_SIGNATURE = np.dtype("<u4")

# Probability that two documents with exactly the minimum similarity are compared.
CANDIDATE_PROBABILITY = 0.99
# The lowest bits of the MinHashes suffice for comparisons (Li, Koenig 2010: b-bit minwise hashing): with four bits the
# standard deviation of the estimate is 0.037, and an eighth of the signatures is written.
_SKETCH_BITS = 4
# Number of documents in a bucket (documents with an equal band) that are compared with all others, so that the work is
# proportional to the bucket. A group of any size that resembles one document takes one of them.
LEADERS = 16

# Size of the rows of a run: 32,768 documents at a similarity of 0.8. Sorting takes three times as much.
RUN_BYTES = 44 << 20
# Size of a partition of the rows; comparing takes some five times as much.
PARTITION_BYTES = 32 << 20
_BLOCK = 2048  # shingles hashed at a time, so that a large document does not take MINHASHES times its size

_NUMBER = np.dtype(">u8")
ID_BYTES = 16
_ID = np.dtype(f"V{ID_BYTES}")
# A document in a band: `id` as two numbers that sort like its bytes.
_ROW = np.dtype([("band", "<u8"), ("id", _NUMBER, (2,)), ("sketch", "u1", (MINHASHES * _SKETCH_BITS // 8,))])

# Fixed, arbitrary numbers; not from a random generator, whose output may change with its version.
_RANDOM = np.frombuffer(hashlib.shake_256(b"near duplicates").digest(2 * MINHASHES * 4), "<u4").astype(np.uint32)
_FACTORS = (_RANDOM[:MINHASHES] | 1)[:, None]
_OFFSETS = _RANDOM[MINHASHES:][:, None]
_HALF = np.uint64(32)


def bands_and_rows(similarity: float) -> tuple[int, int]:
    """Number of bands, and of MinHashes per band, for documents of at least this similarity.

    Documents of similarity s agree in one of b bands of r rows with probability 1 - (1 - s^r)^b. Chosen are the largest
    r, which gives the fewest needless comparisons, and then the smallest b that reach CANDIDATE_PROBABILITY:

        similarity   bands   rows
        0.5             35      3
        0.7             17      4
        0.8             16      6
        0.9             11     10

    Candidates are compared by their estimated similarity. Overall, one of two documents is dropped with probability

        similarity  0.6   0.7   0.75  0.8   0.85  0.9   0.95
        dropped     0.00  0.01  0.12  0.55  0.95  1.00  1.00

    if `near_duplicate_similarity` is 0.8: the number of equal MinHashes is binomial.
    """
    for rows in range(MINHASHES, 0, -1):
        band_is_equal = similarity**rows
        if 1 - (1 - band_is_equal) ** (MINHASHES // rows) >= CANDIDATE_PROBABILITY:
            return math.ceil(math.log(1 - CANDIDATE_PROBABILITY) / math.log1p(-band_is_equal)), rows
    # For very low similarities, every MinHash is a band.
    return MINHASHES, 1


def signature(segments: list[str], settings: CleaningSettings) -> bytes:
    """MINHASHES 32-bit numbers of a document; the share of equal numbers estimates the similarity of two documents.

    Words are those of `components.corpus_gen.words`. Segment boundaries are ignored. A document of fewer than
    `shingle_words` words is one shingle.
    """
    hashes = hash_words("\n".join(segments))
    length = min(settings.shingle_words, len(hashes))
    count = len(hashes) - length + 1
    shingles = hash_ngrams(hashes, length) if length else np.zeros(1, np.uint64)
    numbers = (shingles >> _HALF).astype(np.uint32)
    minima = np.full(MINHASHES, 0xFFFFFFFF, np.uint32)
    for start in range(0, count, _BLOCK):
        np.minimum(minima, (_FACTORS * numbers[start : start + _BLOCK] + _OFFSETS).min(1), out=minima)
    return minima.astype(_SIGNATURE).tobytes()


@beam.ptransform_fn
def FindNearDuplicates(runs, settings: CorpusSettings, folder: str):
    """(run's path, rows) of `write_bands` -> paths of the tables, in `folder`, with the ids to drop (`read_dropped`).

    Of a group of similar documents the smallest id is kept, ordered by its last 8 bytes: the first decide what is held
    out. Exactly: in every bucket of documents with an equal band the smallest id is the leader; documents similar to it
    are dropped; the smallest remaining id is the next leader, up to LEADERS times. So at most one of two compared near
    duplicates is kept. If a < b < c, and b is similar to both but a is not similar to c, then c may be kept along with
    a. A document that occurs twice is not a duplicate of itself.

    The runs take `bands` rows of 88 bytes per document: 1.4 kB at a similarity of 0.8.
    """
    runs = runs | "AllRuns" >> beam.combiners.ToList()
    return (
        runs
        | "Partitions" >> beam.FlatMap(_partitions)
        | "Spread" >> beam.Reshuffle()
        | "WriteDropped" >> beam.Map(_write_dropped, beam.pvalue.AsSingleton(runs), settings, folder)
    )


def run_documents(settings: CleaningSettings) -> int:
    """Number of documents whose rows take RUN_BYTES."""
    return RUN_BYTES // (bands_and_rows(settings.near_duplicate_similarity)[0] * _ROW.itemsize)


def write_bands(path: str, documents: list[tuple[bytes, bytes]], settings: CleaningSettings) -> tuple[str, int]:
    """Write a run of (document_id bytes[16], signature) pairs; returns its path and number of rows."""
    rows = _bands(documents, *bands_and_rows(settings.near_duplicate_similarity))
    rows = rows[np.argsort(rows["band"])]
    write_by_hash(path, rows, rows["band"])
    return path, len(rows)


def read_dropped(tables: Iterable[str], first_slot: int, last_slot: int) -> set[bytes]:
    """Ids of documents to drop in the slots first_slot <= slot < last_slot."""
    return {row.tobytes() for table in tables for row in read_rows(table, first_slot, last_slot, _ID)}


def _partitions(runs: list[tuple[str, int]]) -> range:
    return range(partition_count(sum(rows for _, rows in runs) * _ROW.itemsize, PARTITION_BYTES))


def _write_dropped(partition: int, runs: list[tuple[str, int]], settings: CorpusSettings, folder: str) -> str:
    """Compare the documents of a partition; returns the path of its table."""
    slots = partition_range(partition, len(_partitions(runs)))
    rows = np.concatenate([np.empty(0, _ROW), *(read_rows(path, *slots, _ROW) for path, _ in sorted(runs))])
    dropped = _compare(rows, settings.cleaning.near_duplicate_similarity)
    of_documents = np.array([hash_slot(row.tobytes(), settings.eval_fraction) for row in dropped], int)
    order = np.argsort(of_documents)
    path = f"{folder}/{partition:05d}.dropped"
    write_rows(path, dropped[order], np.searchsorted(of_documents[order], np.arange(SLOTS + 1)))
    return path


def _bands(documents: list[tuple[bytes, bytes]], bands: int, rows: int) -> np.ndarray:
    """One _ROW for each document and band."""
    ids, signatures = zip(*documents, strict=True)
    minhashes = np.frombuffer(b"".join(signatures), _SIGNATURE).reshape(len(documents), MINHASHES)
    low = (minhashes & ((1 << _SKETCH_BITS) - 1)).astype(np.uint8)
    in_bands = minhashes[:, : bands * rows].reshape(len(documents), bands, rows)
    table = np.empty((len(documents), bands), _ROW)
    table["band"] = combine(in_bands[:, :, row] for row in range(rows))
    table["id"] = np.frombuffer(b"".join(ids), _NUMBER).reshape(len(documents), 1, 2)
    table["sketch"] = (low[:, 0::2] << _SKETCH_BITS | low[:, 1::2])[:, None]
    return table.reshape(-1)


def _compare(rows: np.ndarray, similarity: float) -> np.ndarray:
    """Ids of documents to drop, _ID [documents], among the _ROWs of a partition in any order."""
    rows = rows[np.lexsort((rows["id"][:, 0], rows["id"][:, 1], rows["band"]))]
    again = (rows["band"][1:] == rows["band"][:-1]) & (rows["id"][1:] == rows["id"][:-1]).all(1)
    rows = rows[np.concatenate([np.ones(min(len(rows), 1), bool), ~again])]
    # Unequal MinHashes have equal sketches by chance, one in 16.
    least_equal = math.ceil(MINHASHES * (similarity + (1 - similarity) * 2.0**-_SKETCH_BITS))
    dropped = [np.empty((0, 2), _NUMBER)]
    for _ in range(LEADERS):
        if not len(rows):
            break
        leads = np.concatenate([[True], rows["band"][1:] != rows["band"][:-1]])
        leader = np.flatnonzero(leads)[np.cumsum(leads) - 1]
        others = np.flatnonzero(~leads)
        near = _equal(rows["sketch"][others], rows["sketch"][leader[others]]) >= least_equal
        dropped.append(rows["id"][others[near]])
        rows = rows[others[~near]]
    return np.unique(np.concatenate(dropped), axis=0).astype(_NUMBER).view(_ID).reshape(-1)


def _equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Number of equal MinHashes, int64 [N], in two arrays of sketches, uint8 [N, bytes]."""
    differing = one ^ other
    return ((differing & 0x0F) == 0).sum(1) + ((differing & 0xF0) == 0).sum(1)
