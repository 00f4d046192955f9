"""Batches from TFRecord shards, as a stream indexed by example number.

The order of the examples depends on the seed only. Dynamic masks depend on the seed and the number of the first of the
rows masked together (`MASKED_TOGETHER` of a batch), whichever worker keeps them. So a run that resumes at example n
reads exactly the batches of an uninterrupted run, without a checkpoint of the iterator, with any number of devices and
workers (docs/decisions/0015-an-epoch-is-a-pass-over-the-documents.md):

    epoch    a pass over the documents: its shards, in an order drawn for this epoch
    group    consecutive shards in that order, which are read and shuffled together

A resumed run skips earlier groups by their counts and reads its group from the start.

Sources that are mixed are each a stream of their own (`bert_keras.data.mixture`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_keras.data.example_format import ExampleLayout, Shard, feature_spec
from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from bert_keras.data.mixture import Source, choices, examples_by_source
from bert_keras.files import files_in

SHUFFLE_BUFFER = 20_000
READ_AHEAD_FILES = 8
# Minimum records of a group: read in a second, and many times the shuffle buffer, which each group fills again.
GROUP_RECORDS = 10 * SHUFFLE_BUFFER


def shard_files(folder: str) -> list[str]:
    """The shards in a folder, sorted."""
    files = files_in(folder)
    if not files:
        raise FileNotFoundError(f"{folder} has no example shards")
    return files


def records_of_files(files: list[str] | tf.Tensor) -> tf.data.Dataset:
    """The records of files, read in parallel with read-ahead, in a deterministic order."""
    return tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=READ_AHEAD_FILES, num_parallel_calls=READ_AHEAD_FILES, deterministic=True
    )


# Rows of a batch whose masks are drawn together. Each worker masks all blocks in which it has rows: a small batch is
# one block for all workers; of a large batch none masks much more than its own rows.
MASKED_TOGETHER = 256

# The features that masking changes or adds, in the order in which `DynamicMasking` returns them to TensorFlow.
_MASKED = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def _parse(layout: ExampleLayout, *, masked: bool):
    spec = feature_spec(layout, masked=masked)

    def parse(serialized):
        features = tf.io.parse_example(serialized, spec)
        return {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in features.items()}

    return parse


@dataclasses.dataclass(frozen=True, eq=False)
class DynamicMasking:
    """Masking of batches during reading, different each time.

    `tf.numpy_function` calls `mask_tokens`, the code that masks stored examples. So masking runs on the host, in this
    process, as input pipelines do, and is never exported; Python's lock admits one batch at a time. That is
    sufficient: two cores read and mask 70,000 to 90,000 examples of 128 tokens per second in batches of 256, 26,000 to
    37,000 in batches of 32; eight A100 GPUs train 4,600 of BERT-large.
    """

    settings: MaskingSettings
    vocabulary: MaskingVocabulary

    def mask(self, features: dict[str, tf.Tensor], P: int, seed: int, first: tf.Tensor) -> dict[str, tf.Tensor]:
        """Mask rows, a dict of int32 [B, T]; add masked_lm_* [B, P].

        Row 0 is example `first` (int64) of the stream, and begins a block of `MASKED_TOGETHER` rows.
        """

        def mask(first, input_ids, input_mask, sequence_ids=None):
            blocks = []
            for start in range(0, len(input_ids), MASKED_TOGETHER):
                ids, mask, sequences = (
                    None if rows is None else rows[start : start + MASKED_TOGETHER]
                    for rows in (input_ids, input_mask, sequence_ids)
                )
                # Seeds must be non-negative.
                rng = np.random.default_rng([seed % 2**64, int(first) + start])
                blocks.append(mask_tokens(ids, mask, rng, self.settings, self.vocabulary, P, sequences))
            return [np.concatenate([block[name] for block in blocks]) for name in _MASKED]

        arguments = [first, features["input_ids"], features["input_mask"]]
        if "sequence_ids" in features:
            arguments.append(features["sequence_ids"])
        types = [tf.int32, tf.int32, tf.int32, tf.float32]
        masked = dict(zip(_MASKED, tf.numpy_function(mask, arguments, types, stateful=False), strict=True))
        for name, values in masked.items():
            rows, columns = features["input_ids"].shape
            values.set_shape([rows, columns if name == "input_ids" else P])
        return {**features, **masked}


class Group(NamedTuple):
    """Shards that are read and shuffled together.

    Attributes:
        seed: seed of the shuffling.
        skip: number of examples, in shuffled order, that were read before.
    """

    paths: list[str]
    seed: int
    skip: int


def groups_of_shards(shards: Sequence[Shard], first_example: int, seed: int) -> Iterator[Group]:
    """Endless groups from example `first_example` on: pass after pass over the documents.

    Args:
        shards: shards of all passes; at least one with records.
    """
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


def _examples(shards: Sequence[Shard], first_example: int, seed: int) -> tf.data.Dataset:
    """The endless serialized examples of shards, from one on."""
    groups = tf.data.Dataset.from_generator(
        lambda: groups_of_shards(shards, first_example, seed),
        output_signature=Group(tf.TensorSpec([None], tf.string), *[tf.TensorSpec([], tf.int64)] * 2),
    )

    def examples(group: Group):
        # The seed is fixed per group, so `reshuffle_each_iteration` has no use.
        shuffled = records_of_files(group.paths).shuffle(
            SHUFFLE_BUFFER, seed=group.seed, reshuffle_each_iteration=False
        )
        return shuffled.skip(group.skip)

    return groups.flat_map(examples)


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
    replicas: int = 1,
) -> tf.data.Dataset:
    """Endless shuffled batches, each a dict of int32/float32 [batch_size / num_workers / replicas, ...].

    Every worker reads all examples and keeps its rows of each batch before parsing, so the batches do not depend on
    the number of workers (docs/decisions/0008-every-worker-reads-the-whole-stream.md).

    Args:
        sources: examples in the same layout, which share each batch by their weights; one or more.
        batch_size: size of the global batch, a multiple of `num_workers * replicas`.
        first_example: number of examples consumed before.
        dynamic_masking: masking for examples stored unmasked; None for examples stored masked.
        worker, num_workers: the worker whose rows are kept.
        replicas: devices of this worker; its rows of a batch are split into that many batches.
    """
    rows = batch_size // num_workers
    weights = [source.weight for source in sources]
    read = examples_by_source(weights, first_example).tolist()
    streams = [_examples(source.shards, before, seed) for source, before in zip(sources, read, strict=True)]
    examples = streams[0]
    if len(streams) > 1:
        chosen = tf.data.Dataset.from_generator(
            lambda: choices(weights, first_example), output_signature=tf.TensorSpec([None], tf.int64)
        )
        examples = tf.data.Dataset.choose_from_datasets(streams, chosen.unbatch())
    parse = _parse(layout, masked=dynamic_masking is None)
    start, end = worker * rows, (worker + 1) * rows
    if dynamic_masking is not None:  # whole blocks
        start, end = start // MASKED_TOGETHER * MASKED_TOGETHER, -(-end // MASKED_TOGETHER) * MASKED_TOGETHER
        end = min(end, batch_size)
    before = worker * rows - start

    def features(number, serialized):
        parsed = parse(tf.ensure_shape(serialized[start:end], [end - start]))
        if dynamic_masking is not None:
            first_row = first_example + number * batch_size + start
            parsed = dynamic_masking.mask(parsed, layout.max_predictions_per_seq, seed, first_row)
        return {name: values[before : before + rows] for name, values in parsed.items()}

    batches = (
        examples.batch(batch_size, drop_remainder=True)
        .enumerate()
        .map(features, num_parallel_calls=2, deterministic=True)
    )
    if replicas > 1:
        batches = batches.unbatch().batch(rows // replicas, drop_remainder=True)
    return batches.prefetch(4)


def eval_batches(files: list[str], layout: ExampleLayout, *, batch_size: int, masked: bool = True) -> tf.data.Dataset:
    """The examples of `files` once, in order; the last batch may be smaller.

    Args:
        masked: whether they are stored masked, as held-out examples always are; otherwise there is no masked_lm_*.
    """
    parse = _parse(layout, masked=masked)
    return records_of_files(files).batch(batch_size).map(parse, num_parallel_calls=2).prefetch(2)
