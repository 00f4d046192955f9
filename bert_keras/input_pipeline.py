"""TFRecord shards -> batches, as a stream indexed by example number.

The order of the examples is a function of (seed, epoch) alone, so a run that restarts at step s reads exactly the
batches it would have read, without a checkpoint of the iterator, and with any number of devices.
"""

from __future__ import annotations

import tensorflow as tf

from bert_keras.features import feature_spec

SHUFFLE_BUFFER = 20_000
READ_AHEAD_FILES = 8


def shard_files(pattern: str) -> list[str]:
    """The shards that match `pattern`, sorted."""
    files = sorted(tf.io.gfile.glob(pattern))
    if not files:
        raise FileNotFoundError(f"no example shards match {pattern}")
    return files


def _records(files: list[str] | tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=READ_AHEAD_FILES, deterministic=True
    )


def _parse(max_seq_length: int, max_predictions_per_seq: int):
    spec = feature_spec(max_seq_length, max_predictions_per_seq)

    def parse(serialized):
        features = tf.io.parse_example(serialized, spec)
        return {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in features.items()}

    return parse


def train_batches(
    files: list[str],
    *,
    num_examples: int,
    batch_size: int,
    first_step: int,
    seed: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> tf.data.Dataset:
    """Endless shuffled batches from step `first_step` on, each a dict of int32/float32 [batch_size, ...].

    Args:
        num_examples: records in `files`, all told (`example_spec.json` counts them).
        first_step: how many batches have been consumed before.
    """
    first_epoch, offset = divmod(first_step * batch_size, num_examples)

    def epoch(number):
        order = tf.random.experimental.stateless_shuffle(tf.constant(files), seed=[seed, number])
        # The seed is a tensor here; fixing it for each epoch makes `reshuffle_each_iteration` moot.
        return _records(order).shuffle(SHUFFLE_BUFFER, seed=seed + number, reshuffle_each_iteration=False)

    first = epoch(tf.constant(first_epoch, tf.int64)).skip(offset)
    rest = tf.data.Dataset.range(first_epoch + 1, tf.int64.max).flat_map(epoch)
    return (
        first.concatenate(rest)
        .batch(batch_size, drop_remainder=True)
        .map(_parse(max_seq_length, max_predictions_per_seq), num_parallel_calls=2, deterministic=True)
        .prefetch(4)
    )


def eval_batches(
    files: list[str], *, batch_size: int, max_seq_length: int, max_predictions_per_seq: int
) -> tf.data.Dataset:
    """The examples of `files` once, in order; the last batch may be smaller."""
    parse = _parse(max_seq_length, max_predictions_per_seq)
    return _records(files).batch(batch_size).map(parse, num_parallel_calls=2).prefetch(2)
