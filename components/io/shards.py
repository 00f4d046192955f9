"""Shards of records: names, reading and writing, and sums of counts made while writing.

Files are accessed through Beam's file systems (local, gs://, s3://, hdfs://): workers do not have TensorFlow.
"""

import contextlib
import functools
import glob
import hashlib
import io
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystemio import Downloader, DownloaderStream
from apache_beam.io.filesystems import BeamIOError, FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from bert_keras.data.tfrecord import Example, frame, read_records
from bert_keras.errors import InputError
from bert_keras.files import json_text

# Counts of documents, beside them (`components.corpus_gen.record.card`).
COUNTS_FILE = "corpus.json"
# Minimum size of a read from a file that was opened for ranges.
RANGE_BYTES = 1 << 12


def shard_name(prefix: str, index: int, count: int, source_name: str = "") -> str:
    """documents, 3, 10 -> documents-00003-of-00010.tfrecord; of a source: documents-00003-of-00010-web.tfrecord"""
    return f"{prefix}-{index:05d}-of-{count:05d}{f'-{source_name}' if source_name else ''}.tfrecord"


def shard_paths(directory: str) -> list[str]:
    """Paths of the shards in a folder, sorted."""
    return [file.path for file in matching(f"{glob.escape(directory)}/*.tfrecord")]


def matching(pattern: str) -> list[FileMetadata]:
    """Files, local or in a store, that a glob of Beam's matches, hidden ones too, sorted by path; no folders.

    BeamIOError: they cannot be listed. ValueError: the scheme is unknown, or needs an extra package. InputError: a name
    is not UTF-8, as Beam and TFX need it.
    """
    # Beam's local file system lists nothing for a glob without a folder; paths still begin as the pattern does.
    here = "" if "://" in pattern or "/" in re.split(r"[[*?]", pattern)[0] else "./"
    (result,) = FileSystems.match([here + pattern])
    for file in result.metadata_list:
        file.path = file.path.removeprefix(here)
        try:
            file.path.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{os.fsencode(file.path)!r}: its name is not UTF-8; rename the file") from error
    return sorted((file for file in result.metadata_list if not os.path.isdir(file.path)), key=lambda file: file.path)


def is_hidden(path: str, pattern: str = "") -> bool:
    """Tell if a file's or folder's name in `path` begins with "." where no name in `pattern` does.

    >>> is_hidden("text/.git/a.txt", "text/**"), is_hidden("./.text/a.txt", "./.text/**")
    (True, False)
    """
    dotted = [name for name in pattern.split("/") if name.startswith(".")]
    names = [name for name in path.split("/") if name.startswith(".") and name not in (".", "..")]
    return any(not any(fnmatchcase(name, allowed) for allowed in dotted) for name in names)


def open_file(path: str) -> BinaryIO:
    """Open a file as is, without decompression by its extension; FileNotFoundError if there is none."""
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def open_for_ranges(path: str) -> BinaryIO:
    """Open a file to read small ranges: Beam's buffers fetch 16 MB or more for each read of a remote file."""
    if path.startswith("gs://"):
        return _gcs().open(path, "rb", read_buffer_size=RANGE_BYTES)
    if path.startswith("s3://"):
        return DownloaderStream(_S3Object(path))  # type: ignore[return-value]  # a raw BinaryIO
    file = open_file(path)
    if "://" in path and isinstance(file, io.BufferedReader):
        return file.detach()  # type: ignore[return-value]
    return file


class _S3Object(Downloader):
    """An S3 object read by exact ranges: Beam's client requests everything from a range's start to the object's end."""

    def __init__(self, path: str):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        self._where = {"Bucket": bucket, "Key": key}
        try:
            self._size = _s3().head_object(**self._where)["ContentLength"]
        except Exception as error:  # boto creates its exception classes at run time
            raise OSError(f"{path}: {error}") from error

    @property
    def size(self) -> int:
        return self._size

    def get_range(self, start: int, end: int) -> bytes:
        return _s3().get_object(**self._where, Range=f"bytes={start}-{end - 1}")["Body"].read()


@functools.cache
def _gcs() -> Any:
    """Client for Cloud Storage, created once: each has its own connections."""
    from apache_beam.io.gcp.gcsio import GcsIO

    return GcsIO()


@functools.cache
def _s3() -> Any:
    """boto's client with the options of Beam's, created once."""
    from apache_beam.io.aws.clients.s3.boto3_client import Client

    return Client(getattr(FileSystems.get_filesystem("s3://"), "_options", None) or PipelineOptions([])).client


def read_documents(path: str) -> Iterator[list[str]]:
    """Segments of each document of a shard (format: `components.corpus_gen.transforms`).

    ValueError, with file and record: a record is damaged, not a tf.Example, without segments or not UTF-8.
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


def rename(sources: list[str], destinations: list[str]) -> None:
    """Rename files; they replace existing ones, on HDFS after a moment in which there is none."""
    # WebHDFS alone refuses an existing name.
    if existing := [path for path in destinations if path.startswith("hdfs://") and FileSystems.exists(path)]:
        FileSystems.delete(existing)
    FileSystems.rename(sources, destinations)


@contextlib.contextmanager
def whole_file(path: str, temporary_dir: str) -> Iterator[BinaryIO]:
    """Open a file for writing; `path` exists only once it is complete."""
    # Each attempt has its own temporary file: two attempts write the same bytes, and the last one wins.
    temporary = os.path.join(temporary_dir, f"{os.path.basename(path)}.{uuid.uuid4().hex}")
    for folder in filter(None, (os.path.dirname(path), temporary_dir)):
        make_folder(folder)
    try:
        with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            yield file
            if path.startswith("s3://") and not file.tell():
                # S3 refuses a multipart upload without parts, and Beam sends no part of an empty file.
                file.raw._uploader._write_to_s3(b"")  # type: ignore[attr-defined]
        rename([temporary], [path])
    except BaseException:
        if FileSystems.exists(temporary):
            remove_file(temporary)
        raise


def write_file(path: str, content: bytes) -> None:
    """Write a file; `path` exists only once it is complete."""
    with whole_file(path, os.path.dirname(path)) as file:
        file.write(content)


def write_by_content(directory: str, name: str, content: bytes) -> str:
    """Write a file whose name has a hash of its content, `name.format(HASH)`; returns its path."""
    path = f"{directory}/{name.format(hashlib.sha256(content).hexdigest()[:16])}"
    write_file(path, content)
    return path


def write_shard(path: str, records: Iterable[bytes]) -> None:
    """Write a TFRecord file, uncompressed as others' readers expect; `path` exists only once it is complete."""
    # Not in the shard's own folder: TFX's components read every file there, including dot files.
    with whole_file(path, os.path.dirname(path) + ".part") as file:
        file.writelines(map(frame, records))


def remove_temporary(output_dir: str, splits: Iterable[str]) -> None:
    """Remove temporary files of the shards of `output_dir`'s splits, after all shards are written."""
    for split in splits:
        remove_folder(f"{output_dir}/Split-{split}.part")


def remove_file(path: str) -> None:
    """Remove a file; of local paths and gs:// Beam would read one with `*`, `?` or `[` as a pattern."""
    if "://" in path:
        FileSystems.delete([glob.escape(path) if path.startswith("gs://") else path])
    else:
        os.remove(path)


def remove_folder(path: str) -> None:
    """Remove a folder with its content, if it exists."""
    if "://" in path:
        # Without the slash an object store would remove one object of this name, and nothing below it.
        FileSystems.delete([f"{path}/"])
    else:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


def make_folder(path: str) -> None:
    """Create a folder and its parents, if missing."""
    with contextlib.suppress(BeamIOError, OSError):
        if not FileSystems.exists(path):
            FileSystems.mkdirs(path)


def read_json(path: str) -> Any:
    """Read JSON; FileNotFoundError if there is no file."""
    with open_file(path) as file:
        return json.load(file)


def write_json(path: str, value: object) -> None:
    """Write `value` as JSON, NaN as null; `path` exists only once it is complete."""
    write_file(path, (json_text(value, indent=2, sort_keys=True) + "\n").encode())
