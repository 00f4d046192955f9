"""Shards of records: one naming, one way to read and write them, one way to sum what was counted while writing."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator

import apache_beam as beam
import tensorflow as tf


def shard_name(prefix: str, index: int, count: int) -> str:
    """documents, 3, 10 -> documents-00003-of-00010.tfrecord"""
    return f"{prefix}-{index:05d}-of-{count:05d}.tfrecord"


def read_documents(path: str) -> Iterator[list[str]]:
    """The segments of each document of a shard (its format: `components.corpus_gen.transforms`).

    Raises:
        ValueError: a record is damaged, no tf.Example, without segments or not UTF-8; names file and record.
    """
    number = 0
    try:
        # Not tf.data: it would take hold of a GPU in each worker.
        for record in tf.compat.v1.io.tf_record_iterator(path):
            features = tf.train.Example.FromString(record).features.feature
            if "segments" not in features:
                raise ValueError(f"no feature 'segments' among {sorted(features)}")
            yield [segment.decode("utf-8") for segment in features["segments"].bytes_list.value]
            number += 1
    except tf.errors.NotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path}, record {number}: not a document of corpus_gen: {error}") from error


def write_shard(path: str, records: Iterable[bytes]) -> None:
    """Writes an uncompressed TFRecord file; `path` exists only when it is whole.

    Uncompressed, because the original's, Model Garden's and NVIDIA's readers expect it. Every attempt has a temporary
    file of its own: two attempts at one bucket write the same bytes, and the last one wins.
    """
    directory, name = os.path.split(path)
    # Not in the shard's own folder: TFX's components read every file there, dot files too.
    temporary_dir = directory + ".part"
    for folder in (directory, temporary_dir):
        tf.io.gfile.makedirs(folder)
    temporary = os.path.join(temporary_dir, f"{name}.{uuid.uuid4().hex}")
    try:
        with tf.io.TFRecordWriter(temporary) as writer:
            for record in records:
                writer.write(record)
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except BaseException:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
        raise


def remove_temporary(output_dir: str) -> None:
    """Removes what attempts have left of the shards of `output_dir`'s splits; when all shards are there."""
    for folder in tf.io.gfile.glob(f"{output_dir}/Split-*.part"):
        tf.io.gfile.rmtree(folder)


def write_json(path: str, value: object) -> None:
    """Writes `value` as JSON; `path` exists only when it is whole."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps(value, indent=2, sort_keys=True) + "\n")
    tf.io.gfile.rename(temporary, path, overwrite=True)


class SumCounts(beam.PTransform):
    """(split, {name: count}) of every shard -> one {split: {name: sum}}."""

    def expand(self, counts):
        return (
            counts
            | "ToDict" >> beam.MapTuple(lambda split, values: {split: values})
            | "Sum" >> beam.CombineGlobally(_add)
        )


def _add(dicts: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for splits in dicts:
        for split, counts in splits.items():
            into = total.setdefault(split, {})
            for name, value in counts.items():
                into[name] = into.get(name, 0) + value
    return total
