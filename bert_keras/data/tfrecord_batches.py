"""Batches from TFRecord shards, as a stream indexed by example number.

The order of the examples depends on the seed only. Dynamic masks depend on the seed and the number of the first of the
rows masked together (`MASKED_TOGETHER` of a batch), whichever worker keeps them. So a run that resumes at example n
reads exactly the batches of an uninterrupted run, without a checkpoint of the iterator, with any number of devices and
workers (docs/decisions/0015-an-epoch-is-a-pass-over-the-documents.md):

    epoch    a pass over the documents: its shards, in an order drawn for this epoch
    group    consecutive shards in that order, which are read and shuffled together

A resumed run skips earlier groups by their counts and reads its group from the start.

The records of a group are those of `READ_AHEAD_FILES` of its files in turns, where the next file takes the place of one
that has ended. They pass through a buffer: each next record takes the place of a random one, which is read.

Sources that are mixed are each a stream of their own (`bert_keras.data.mixture`). Nothing here needs TensorFlow or JAX,
so every backend reads the same batches.
"""

import dataclasses
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from etils import epath

from bert_keras.data.example_format import ExampleLayout, Shard
from bert_keras.data.example_parser import Arrays, ExampleParser
from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from bert_keras.data.mixture import Source, choices, examples_by_source
from bert_keras.data.tfrecord import read_records
from bert_keras.errors import InputError
from bert_keras.files import files_in

SHUFFLE_BUFFER = 20_000
READ_AHEAD_FILES = 8
# Bytes read at a time from each file: an object store takes tens of milliseconds to answer.
BLOCK_BYTES = 1 << 20
# Minimum records of a group: read in a second, and many times the shuffle buffer, which each group fills again.
GROUP_RECORDS = 10 * SHUFFLE_BUFFER
# Rows of a batch whose masks are drawn together. Each worker masks all blocks in which it has rows: a small batch is
# one block for all workers; of a large batch none masks much more than its own rows.
MASKED_TOGETHER = 256


class Record(NamedTuple):
    """A serialized tf.Example, and its file and its number there, for errors."""

    data: bytes
    path: str
    number: int


def shard_files(folder: str) -> list[str]:
    """The shards in a folder, sorted."""
    files = files_in(folder)
    if not files:
        raise FileNotFoundError(f"{folder} has no example shards")
    return files


class _ReadAhead(io.RawIOBase):
    """A file whose next block is read by a thread."""

    def __init__(self, file: BinaryIO, threads: Executor):
        self._file, self._threads, self._block = file, threads, memoryview(b"")
        self._next = threads.submit(file.read, BLOCK_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._block:
            self._block = memoryview(self._next.result())
            if self._block:  # not the end
                self._next = self._threads.submit(self._file.read, BLOCK_BYTES)
        size = min(len(buffer), len(self._block))
        buffer[:size], self._block = self._block[:size], self._block[size:]
        return size

    def close(self) -> None:
        wait([self._next])
        super().close()


def _records_of_file(path: str, threads: Executor) -> Iterator[Record]:
    with epath.Path(path).open("rb") as file, io.BufferedReader(_ReadAhead(file, threads), BLOCK_BYTES) as buffered:
        try:
            for number, data in enumerate(read_records(buffered)):
                yield Record(data, path, number)
        except ValueError as error:
            raise InputError(f"{path}, {error}; restore the file, or make the examples again") from error


def records_of_files(paths: Iterable[str]) -> Iterator[Record]:
    """The records of files: one of each of `READ_AHEAD_FILES` files in turn, which are read ahead.

    The next file takes the place of one that has ended, in the following turn (as of `tf.data.Dataset.interleave`).
    InputError: a record is truncated or damaged; names its file and number.
    """
    with ThreadPoolExecutor(READ_AHEAD_FILES, "records") as threads:
        waiting = (_records_of_file(path, threads) for path in paths)
        files = list(itertools.islice(waiting, READ_AHEAD_FILES))
        while files:
            following: list[Iterator[Record]] = []
            for file in files:
                if record := next(file, None):
                    yield record
                    following.append(file)
                else:
                    following += itertools.islice(waiting, 1)
            files = following


def shuffled(records: Iterator[Record], seed: int) -> Iterator[Record]:
    """The records in random order: each next one takes the place of a random one of `SHUFFLE_BUFFER`, which is read."""
    rng = np.random.default_rng(seed)
    buffer = list(itertools.islice(records, SHUFFLE_BUFFER))
    while block := list(itertools.islice(records, SHUFFLE_BUFFER)):
        for place, record in zip(rng.integers(len(buffer), size=len(block)).tolist(), block, strict=True):
            yield buffer[place]
            buffer[place] = record
    for place in rng.permutation(len(buffer)).tolist():
        yield buffer[place]


@dataclasses.dataclass(frozen=True, eq=False)
class DynamicMasking:
    """Masking of batches during reading, different each time, by the code that masks stored examples."""

    settings: MaskingSettings
    vocabulary: MaskingVocabulary

    def mask(self, features: Arrays, P: int, seed: int, first: int) -> Arrays:
        """Mask rows, a dict of int32 [B, T]; add masked_lm_* [B, P].

        Row 0 is example `first` of the stream, and begins a block of `MASKED_TOGETHER` rows.
        """
        blocks = []
        for start in range(0, len(features["input_ids"]), MASKED_TOGETHER):
            rows = {name: values[start : start + MASKED_TOGETHER] for name, values in features.items()}
            # Seeds must be non-negative.
            rng = np.random.default_rng([seed % 2**64, first + start])
            arrays = rows["input_ids"], rows["input_mask"], rng, self.settings, self.vocabulary, P
            blocks.append(mask_tokens(*arrays, rows.get("sequence_ids")))
        return features | {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


class Group(NamedTuple):
    """Shards that are read and shuffled together."""

    paths: list[str]
    seed: int
    skip: int  # number of examples, in shuffled order, that were read before


def groups_of_shards(shards: Sequence[Shard], first_example: int, seed: int) -> Iterator[Group]:
    """Endless groups of the shards of all passes, from example `first_example` on, pass after pass."""
    passes = [[s for s in shards if s.pass_number == number] for number in sorted({s.pass_number for s in shards})]
    cycles, skip = divmod(first_example, sum(shard.records for shard in shards))
    for epoch in itertools.count(cycles * len(passes)):
        rng = np.random.default_rng([seed % 2**64, epoch])
        shards_of_pass = passes[epoch % len(passes)]
        for group in _cut([shards_of_pass[index] for index in rng.permutation(len(shards_of_pass))]):
            group_seed = int(rng.integers(2**62))
            records = sum(shard.records for shard in group)
            if skip < records:
                yield Group([shard.path for shard in group], group_seed, skip)
            skip = max(0, skip - records)


def _cut(shards: list[Shard]) -> Iterator[list[Shard]]:
    """Cut into runs of at least `READ_AHEAD_FILES` shards and `GROUP_RECORDS` records; the last run may be longer."""
    start = records = 0
    remaining = sum(shard.records for shard in shards)
    for end, shard in enumerate(shards, 1):
        records += shard.records
        remaining -= shard.records
        if end == len(shards) or (
            min(end - start, len(shards) - end) >= READ_AHEAD_FILES and min(records, remaining) >= GROUP_RECORDS
        ):
            yield shards[start:end]
            start, records = end, 0


def _records(shards: Sequence[Shard], first_example: int, seed: int) -> Iterator[Record]:
    """The endless records of shards, from an example on."""
    for group in groups_of_shards(shards, first_example, seed):
        yield from itertools.islice(shuffled(records_of_files(group.paths), group.seed), group.skip, None)


def _parsed(parser: ExampleParser, records: Sequence[Record]) -> Arrays:
    return parser([record.data for record in records], lambda row: f"{records[row].path}, record {records[row].number}")


def train_batches(
    sources: Sequence[Source],
    layout: ExampleLayout,
    *,
    batch_size: int,
    first_example: int,
    seed: int,
    dynamic_masking: DynamicMasking | None,
    worker: int = 0,
    num_workers: int = 1,
) -> Iterator[Arrays]:
    """Endless shuffled batches, each a dict of int32/float32 [batch_size / num_workers, ...].

    Every worker reads all examples and keeps its rows of each batch before parsing, so the batches do not depend on the
    number of workers (docs/decisions/0008-every-worker-reads-the-whole-stream.md). InputError: a record is damaged or
    has other features; names its file and number.

    Args:
        sources: examples in the same layout, which share each batch by their weights; one or more.
        batch_size: size of the global batch, a multiple of `num_workers`.
        first_example: number of examples consumed before.
        dynamic_masking: masking for examples stored unmasked; None for examples stored masked.
        worker, num_workers: the worker whose rows are kept.
    """
    rows = batch_size // num_workers
    weights = [source.weight for source in sources]
    read = examples_by_source(weights, first_example).tolist()
    streams = [_records(source.shards, before, seed) for source, before in zip(sources, read, strict=True)]
    records = streams[0]
    if len(streams) > 1:
        chosen = itertools.chain.from_iterable(block.tolist() for block in choices(weights, first_example))
        records = (next(streams[source]) for source in chosen)
    parser = ExampleParser(layout.features(masked=dynamic_masking is None))
    start, end = worker * rows, (worker + 1) * rows
    if dynamic_masking is not None:  # whole blocks
        start, end = start // MASKED_TOGETHER * MASKED_TOGETHER, -(-end // MASKED_TOGETHER) * MASKED_TOGETHER
        end = min(end, batch_size)
    before = worker * rows - start
    for first in itertools.count(first_example, batch_size):
        taken = list(itertools.islice(records, batch_size))
        if len(streams) > 1:  # their turns are periodic, and a `GptBert` reads even and odd rows differently
            taken = [taken[row] for row in np.random.default_rng([seed % 2**64, first, 1]).permutation(batch_size)]
        batch = _parsed(parser, taken[start:end])
        if dynamic_masking is not None:
            batch = dynamic_masking.mask(batch, layout.max_predictions_per_seq, seed, first + start)
        yield {name: values[before : before + rows] for name, values in batch.items()}


def eval_batches(
    files: Sequence[str], layout: ExampleLayout, *, batch_size: int, masked: bool = True
) -> Iterator[Arrays]:
    """The examples of `files` once, in order; the last batch may be smaller.

    `masked`: whether they are stored masked, as held-out examples always are; otherwise there is no masked_lm_*.
    InputError: as of `train_batches`.
    """
    parser, records = ExampleParser(layout.features(masked=masked)), records_of_files(files)
    while batch := list(itertools.islice(records, batch_size)):
        yield _parsed(parser, batch)
