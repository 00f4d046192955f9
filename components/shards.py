"""Shards of records: one naming, one way to read and write them, one way to sum what was counted while writing.

Files are reached through Beam's file systems (local, gs://, s3://, hdfs://), not TensorFlow's: workers do without it.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import BeamIOError, FileSystems

from components.tfrecord import Example, frame, read_records

# What a read fetches at least, where a file is opened for ranges.
RANGE_BYTES = 1 << 12


def shard_name(prefix: str, index: int, count: int) -> str:
    """documents, 3, 10 -> documents-00003-of-00010.tfrecord"""
    return f"{prefix}-{index:05d}-of-{count:05d}.tfrecord"


def shard_paths(directory: str) -> list[str]:
    """The shards in a folder, sorted."""
    (found,) = FileSystems.match([f"{directory}/*.tfrecord"])
    return sorted(metadata.path for metadata in found.metadata_list)


def open_file(path: str) -> BinaryIO:
    """The bytes of a file as they are, whatever its name ends in.

    Raises:
        FileNotFoundError: there is none.
    """
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def open_for_ranges(path: str) -> BinaryIO:
    """As `open_file`, to read little here and there: on Google Cloud Storage a read otherwise fetches 16 MB.

    Raises:
        FileNotFoundError: there is none.
    """
    return _gcs().open(path, "rb", read_buffer_size=RANGE_BYTES) if path.startswith("gs://") else open_file(path)


@functools.cache
def _gcs() -> Any:
    """The client, made once: each has connections of its own."""
    from apache_beam.io.gcp.gcsio import GcsIO

    return GcsIO()


def read_documents(path: str) -> Iterator[list[str]]:
    """The segments of each document of a shard (its format: `components.corpus_gen.transforms`).

    Raises:
        ValueError: a record is damaged, no tf.Example, without segments or not UTF-8; names file and record.
        FileNotFoundError: there is no such file.
    """
    number = 0
    with open_file(path) as file:
        try:
            for record in read_records(file):
                features = Example.FromString(record).features.feature
                if "segments" not in features:
                    raise ValueError(f"no feature 'segments' among {sorted(features)}")
                yield [segment.decode("utf-8") for segment in features["segments"].bytes_list.value]
                number += 1
        except Exception as error:
            raise ValueError(f"{path}, record {number}: not a document of corpus_gen: {error}") from error


@contextlib.contextmanager
def whole_file(path: str, temporary_dir: str) -> Iterator[BinaryIO]:
    """A file to write to; `path` exists only when it is whole.

    Every attempt has a temporary file of its own: two attempts write the same bytes, and the last one wins.
    """
    temporary = os.path.join(temporary_dir, f"{os.path.basename(path)}.{uuid.uuid4().hex}")
    for folder in (os.path.dirname(path), temporary_dir):
        if folder:
            make_folder(folder)
    try:
        with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            yield file
        FileSystems.rename([temporary], [path])
    except BaseException:
        if FileSystems.exists(temporary):
            FileSystems.delete([temporary])
        raise


def write_shard(path: str, records: Iterable[bytes]) -> None:
    """Writes an uncompressed TFRecord file; `path` exists only when it is whole.

    Uncompressed, because the original's, Model Garden's and NVIDIA's readers expect it.
    """
    # Not in the shard's own folder: TFX's components read every file there, dot files too.
    with whole_file(path, os.path.dirname(path) + ".part") as file:
        file.writelines(map(frame, records))


def remove_temporary(output_dir: str) -> None:
    """Removes what attempts have left of the shards of `output_dir`'s splits; when all shards are there."""
    remove_folders(f"{output_dir}/Split-*.part")


def remove_folders(pattern: str) -> None:
    """Removes the folders that match, with all that is in them."""
    (found,) = FileSystems.match([f"{pattern}/*"])
    folders = sorted({os.path.dirname(metadata.path) for metadata in found.metadata_list})
    if "://" not in pattern:
        folders = sorted(glob.glob(pattern))  # empty ones too, which object stores do not have
    if folders:
        FileSystems.delete(folders)


def make_folder(path: str) -> None:
    """Makes a folder, and those above it, if it is not there."""
    with contextlib.suppress(BeamIOError, OSError):
        if not FileSystems.exists(path):
            FileSystems.mkdirs(path)


def write_json(path: str, value: object) -> None:
    """Writes `value` as JSON; `path` exists only when it is whole."""
    content = json.dumps(value, indent=2, sort_keys=True) + "\n"
    with whole_file(path, os.path.dirname(path)) as file:
        file.write(content.encode())


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
