"""TFRecord shards -> batches, as a stream indexed by example number.

The order of the examples is a function of (seed, epoch) alone, and dynamic masks of (seed, number of the batch's first
example), so a run that restarts at example n reads exactly the batches it would have read, without a checkpoint of the
iterator, and with any number of devices and workers.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from bert_keras.features import ExampleLayout, feature_spec
from bert_keras.masking import MaskingSettings, MaskingVocabulary, mask_tokens

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


# What masking changes and makes, in the order in which `DynamicMasking` hands it to TensorFlow.
_MASKED = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def _parse(layout: ExampleLayout, *, masked: bool):
    spec = feature_spec(layout, masked=masked)

    def parse(serialized):
        features = tf.io.parse_example(serialized, spec)
        return {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in features.items()}

    return parse


@dataclasses.dataclass(frozen=True, eq=False)
class DynamicMasking:
    """How batches are masked while they are read, each time anew.

    It calls `mask_tokens`, the code that masks stored examples, by `tf.numpy_function`. So it runs on the host, in
    this process, where input pipelines run anyway, and is no part of what is exported; and Python's lock lets one
    batch be masked at a time. That is enough: two cores read and mask 70,000 to 90,000 examples of 128 tokens a second
    in batches of 256, 26,000 to 37,000 in batches of 32; eight A100 GPUs train 4,600 of BERT-large.

    Attributes:
        settings: how tokens are masked.
        vocabulary: what tokens are.
    """

    settings: MaskingSettings
    vocabulary: MaskingVocabulary

    def mask(self, features: dict[str, tf.Tensor], P: int, seed: int, first: tf.Tensor) -> dict[str, tf.Tensor]:
        """Masks rows, a dict of int32 [B, T], the first of them example `first` (int64) of the stream; adds masked_lm_*
        [B, P]."""

        def mask(first, input_ids, input_mask, sequence_ids=None):
            # The sequence of seeds must be of natural numbers.
            rng = np.random.default_rng([seed % 2**64, int(first)])
            masked = mask_tokens(input_ids, input_mask, rng, self.settings, self.vocabulary, P, sequence_ids)
            return [masked[name] for name in _MASKED]

        arguments = [first, features["input_ids"], features["input_mask"]]
        if "sequence_ids" in features:
            arguments.append(features["sequence_ids"])
        types = [tf.int32, tf.int32, tf.int32, tf.float32]
        masked = dict(zip(_MASKED, tf.numpy_function(mask, arguments, types, stateful=False), strict=True))
        for name, values in masked.items():
            rows, columns = features["input_ids"].shape
            values.set_shape([rows, columns if name == "input_ids" else P])
        return {**features, **masked}


def train_batches(
    files: list[str],
    layout: ExampleLayout,
    *,
    num_examples: int,
    batch_size: int,
    first_example: int,
    seed: int,
    dynamic_masking: DynamicMasking | None,
    worker: int = 0,
    num_workers: int = 1,
    replicas: int = 1,
) -> tf.data.Dataset:
    """Endless shuffled batches, each a dict of int32/float32 [batch_size / num_workers / replicas, ...].

    Every worker reads all examples and keeps its rows of each batch, before they are parsed: so the batches are the
    same with any number of workers (docs/decisions/0008-every-worker-reads-the-whole-stream.md).

    Args:
        layout: of the examples.
        num_examples: records in `files`, all told (`example_spec.json` counts them).
        batch_size: of the global batch, a multiple of `num_workers * replicas`.
        first_example: how many examples have been consumed before.
        dynamic_masking: masks the examples, which are stored unmasked; None if they are stored masked.
        worker, num_workers: whose rows are kept.
        replicas: devices of this worker; its rows of a batch come as so many batches.
    """
    first_epoch, offset = divmod(first_example, num_examples)
    rows = batch_size // num_workers

    def epoch(number):
        order = tf.random.experimental.stateless_shuffle(tf.constant(files), seed=[seed, number])
        # The seed is a tensor here; fixing it for each epoch makes `reshuffle_each_iteration` moot.
        return _records(order).shuffle(SHUFFLE_BUFFER, seed=seed + number, reshuffle_each_iteration=False)

    first = epoch(tf.constant(first_epoch, tf.int64)).skip(offset)
    rest = tf.data.Dataset.range(first_epoch + 1, tf.int64.max).flat_map(epoch)
    parse = _parse(layout, masked=dynamic_masking is None)

    def features(number, serialized):
        serialized = tf.ensure_shape(serialized[worker * rows : (worker + 1) * rows], [rows])
        parsed = parse(serialized)
        if dynamic_masking is not None:
            first_row = first_example + number * batch_size + worker * rows
            parsed = dynamic_masking.mask(parsed, layout.max_predictions_per_seq, seed, first_row)
        return parsed

    batches = (
        first.concatenate(rest)
        .batch(batch_size, drop_remainder=True)
        .enumerate()
        .map(features, num_parallel_calls=2, deterministic=True)
    )
    if replicas > 1:
        batches = batches.unbatch().batch(rows // replicas, drop_remainder=True)
    return batches.prefetch(4)


def eval_batches(files: list[str], layout: ExampleLayout, *, batch_size: int, masked: bool = True) -> tf.data.Dataset:
    """The examples of `files` once, in order; the last batch may be smaller.

    Args:
        layout: of the examples.
        masked: whether they are stored masked, as held-out ones always are. If not, there is no masked_lm_*.
    """
    parse = _parse(layout, masked=masked)
    return _records(files).batch(batch_size).map(parse, num_parallel_calls=2).prefetch(2)
