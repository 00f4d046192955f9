"""Sorted runs: an external sort of documents between reading and sharding, so that no runner holds a corpus in memory.

A run is a file with the documents that one worker has read, some megabytes of them, sorted by *slot*. A slot is a split
and the leading bits of the document's id. A shard gets the documents of a range of slots, which are contiguous in every
run. So a shard is made by reading one range of each run.

    header    SLOTS + 1 offsets, uint64: beginning of each slot's records, and the end of the file
    records   TFRecords of documents (`components.corpus_gen.transforms`), by slot

Other tables that are too large for memory or for Beam's shuffle are sorted alike: runs of rows by a hash, whose leading
bits are the slot, and partitions of all rows, each a range of slots that one worker reads from every run.
"""

import io
import math
import os
from collections.abc import Iterable, Iterator

import numpy as np

from bert_keras.data.tfrecord import FRAME_BYTES, frame, read_records
from bert_keras.errors import InputError
from components.corpus_gen.settings import CorpusSettings
from components.io.shards import open_for_ranges, whole_file

SPLITS = ("train", "eval")
# Slots of a split: its maximum number of shards, and the granularity with which they are filled.
SLOT_BITS = 14
SLOTS_A_SPLIT = 1 << SLOT_BITS
SLOTS = SLOTS_A_SPLIT * len(SPLITS)
# Leading bits of a hash: the granularity of partitions, and their maximum number.
HASH_SLOT_BITS = 12
_OFFSET = np.dtype("<u8")
_HEADER_BYTES = (SLOTS + 1) * _OFFSET.itemsize


def hash_slot(identity: bytes, eval_fraction: float) -> int:
    """Slot of a document; independent bits of its id determine the split and the position in it."""
    held_out = int.from_bytes(identity[:4], "big") < eval_fraction * 2**32
    return held_out * SLOTS_A_SPLIT + (int.from_bytes(identity[4:12], "big") >> (64 - SLOT_BITS))


def hash_range(split: str, bucket: int, buckets: int) -> tuple[int, int]:
    """Range of slots of a bucket, [first, end), if the split has `buckets` buckets."""
    first = SPLITS.index(split) * SLOTS_A_SPLIT
    return first + bucket * SLOTS_A_SPLIT // buckets, first + (bucket + 1) * SLOTS_A_SPLIT // buckets


def bucket_counts(split_bytes: dict[str, int], settings: CorpusSettings) -> dict[str, int]:
    """Number of shards of each split; InputError if `corpus.bucket_bytes` is too small for this amount of text."""
    buckets = {split: max(1, math.ceil(split_bytes.get(split, 0) / settings.bucket_bytes)) for split in SPLITS}
    if max(buckets.values()) > SLOTS_A_SPLIT:
        min_bytes = math.ceil(max(split_bytes.values()) / SLOTS_A_SPLIT)
        raise InputError(
            f"{max(split_bytes.values()):,} bytes of text need more than {SLOTS_A_SPLIT:,} shards of "
            f"{settings.bucket_bytes:,} bytes: --set corpus.bucket_bytes={min_bytes} or more"
        )
    return buckets


def write_run(path: str, documents: Iterable[tuple[int, bytes]]) -> dict[str, int]:
    """Write (slot, serialized document) pairs, in any order; returns the size of each split's records in bytes."""
    sizes = np.zeros(SLOTS + 1, _OFFSET)
    ordered = sorted(documents)
    for slot, record in ordered:
        sizes[slot + 1] += len(record) + FRAME_BYTES
    with whole_file(path, os.path.dirname(path)) as file:
        file.write((np.cumsum(sizes, dtype=_OFFSET) + np.uint64(_HEADER_BYTES)).astype(_OFFSET).tobytes())
        file.writelines(frame(record) for _, record in ordered)
    by_split = sizes[1:].reshape(len(SPLITS), SLOTS_A_SPLIT).sum(1)
    return {split: int(size) for split, size in zip(SPLITS, by_split, strict=True)}


def read_run(path: str, first_slot: int, last_slot: int) -> Iterator[bytes]:
    """Serialized documents in the slots first_slot <= slot < last_slot; ValueError if the file is damaged."""
    try:
        yield from read_records(io.BytesIO(read_rows(path, first_slot, last_slot, np.dtype(np.uint8)).tobytes()))
    except ValueError as error:
        raise ValueError(f"{path}: slots {first_slot} to {last_slot}: {error}") from error


def write_rows(path: str, rows: np.ndarray, starts: np.ndarray) -> None:
    """Write rows and the number of the first row of each range, and the number of all."""
    offsets = (len(starts) * _OFFSET.itemsize + starts * rows.itemsize).astype(_OFFSET)
    with whole_file(path, os.path.dirname(path)) as file:
        file.write(offsets.tobytes())
        file.write(rows.tobytes())


def write_by_hash(path: str, rows: np.ndarray, hashes: np.ndarray) -> None:
    """Write rows that are sorted by their hashes, uint64, with a range for each slot."""
    slots = np.arange(1 + (1 << HASH_SLOT_BITS), dtype=np.uint64)
    write_rows(path, rows, np.searchsorted(hashes >> np.uint64(64 - HASH_SLOT_BITS), slots))


def partition_count(size: int, max_size: int) -> int:
    """Number of partitions of about `max_size` bytes for rows of `size` bytes."""
    return min(1 << HASH_SLOT_BITS, 1 + size // max_size)


def partition_range(partition: int, partitions: int) -> tuple[int, int]:
    """Range of slots of a partition, [first, end)."""
    return (partition << HASH_SLOT_BITS) // partitions, ((partition + 1) << HASH_SLOT_BITS) // partitions


def read_rows(path: str, first: int, last: int, dtype: np.dtype) -> np.ndarray:
    """Rows of the ranges first <= range < last."""
    with open_for_ranges(path) as file:
        file.seek(first * _OFFSET.itemsize)
        header = np.frombuffer(file.read((last - first + 1) * _OFFSET.itemsize), _OFFSET)
        file.seek(int(header[0]))
        return np.frombuffer(file.read(int(header[-1] - header[0])), dtype)
