"""Shards and JSON files are written atomically; ranges of a file of lines have each line once."""

import csv
import io
import itertools
import json
import math
import types

import hypothesis
import pytest
import tensorflow as tf
from apache_beam.io import hadoopfilesystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import strategies

from bert_keras.data.tfrecord import frame
from components.io.line_ranges import lines_between
from components.io.shards import (
    open_file,
    remove_file,
    remove_folder,
    shard_paths,
    write_json,
    write_shard,
)
from tests.support.examples.object_stores import SCHEMES, in_memory


def read(path):
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def test_a_shard_replaces_an_older_one(tmp_path):
    path = tmp_path / "new folder" / "shard.tfrecord"
    write_shard(str(path), [b"a", b""])
    assert read(path) == [b"a", b""]
    write_shard(str(path), iter([b"b"]))
    assert read(path) == [b"b"]
    assert [p.name for p in path.parent.iterdir()] == ["shard.tfrecord"]


def test_shards_in_a_relative_folder_with_brackets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shard("out[1]/shard.tfrecord", [b"a"])
    assert shard_paths("out[1]") == ["out[1]/shard.tfrecord"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_shards_in_an_object_store(scheme, monkeypatch):
    FileSystems.set_options(PipelineOptions([]))
    store = in_memory(monkeypatch, scheme)
    folder = f"{scheme}://bucket/out/Split-train"
    write_shard(f"{folder}/b.tfrecord", [b"1"])
    write_shard(f"{folder}/a.tfrecord", [])
    assert shard_paths(folder) == [f"{folder}/a.tfrecord", f"{folder}/b.tfrecord"]
    assert sorted(store.names(f"{scheme}://bucket")) == ["out/Split-train/a.tfrecord", "out/Split-train/b.tfrecord"]
    with open_file(f"{folder}/a.tfrecord") as file:
        assert file.read() == b""


class WebHdfs:
    """Files in memory under Beam's HDFS file system, which refuses to rename onto an existing name."""

    def __init__(self):
        self.files, self.folders = {}, set()

    def status(self, path, strict):
        if path in self.files or path in self.folders:
            return {"length": len(self.files.get(path, b"")), "modificationTime": 0}
        return None

    def makedirs(self, path):
        self.folders.add(path)

    def write(self, path):
        files = self.files

        class Writer(io.BytesIO):
            def __exit__(self, *_):
                files[path] = self.getvalue()

        return Writer()

    def rename(self, source, destination):
        if destination in self.files:
            raise OSError(f"Unable to rename {source} to {destination}.")
        self.files[destination] = self.files.pop(source)

    def delete(self, path, recursive):
        del self.files[path]


def test_a_shard_replaces_an_older_one_on_hdfs(monkeypatch):
    client = WebHdfs()
    package = types.SimpleNamespace(InsecureClient=lambda url, user: client, HdfsError=OSError)
    monkeypatch.setattr(hadoopfilesystem, "hdfs", package)
    FileSystems.set_options(PipelineOptions(["--hdfs_host=name", "--hdfs_port=9870", "--hdfs_user=ann"]))
    for content in (b"old", b"new"):
        write_shard("hdfs://folder/shard", [content])
    assert client.files == {"/folder/shard": frame(b"new")}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_remove_folder_removes_only_the_folder(scheme, monkeypatch, tmp_path):
    FileSystems.set_options(PipelineOptions([]))
    store = in_memory(monkeypatch, scheme)
    names = ["out/work.part/file", "out/work.part/deep/er/file", "out/work.partly", "out/work.parts/file"]
    for name in names:
        store.write(f"{scheme}://bucket/{name}", b"1")
        path = tmp_path / "a [b]*" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
    for _ in range(2):  # a missing folder is not an error
        remove_folder(f"{scheme}://bucket/out/work.part")
        remove_folder(str(tmp_path / "a [b]*/out/work.part"))
    assert sorted(store.names(f"{scheme}://bucket")) == names[2:]
    assert sorted(p.name for p in (tmp_path / "a [b]*/out").iterdir()) == ["work.partly", "work.parts"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_remove_file_takes_no_path_as_a_pattern(scheme, monkeypatch, tmp_path):
    store = in_memory(monkeypatch, scheme)
    for name in ("a[1]", "a1"):
        store.write(f"{scheme}://bucket/{name}/file", b"1")
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"1")
    remove_file(f"{scheme}://bucket/a[1]/file")
    remove_file(str(tmp_path / "a[1]" / "file"))
    assert list(store.names(f"{scheme}://bucket")) == ["a1/file"]
    assert [path.parent.name for path in tmp_path.glob("*/file")] == ["a1"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_shard(tmp_path, error):
    path = tmp_path / "Split-train/shard.tfrecord"
    write_shard(str(path), [b"old"])
    seen = []

    def records():
        yield b"new"
        # TFX's components read every file of the folder, including dot files.
        seen.extend(path.parent.iterdir())
        raise error

    with pytest.raises(error):
        write_shard(str(path), records())
    assert seen == [path]
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path] and read(path) == [b"old"]


def test_json_is_written_atomically(tmp_path):
    path = tmp_path / "a.json"
    write_json(str(path), {"b": 1, "a": [1.5, "ü"]})
    assert path.read_text() == '{\n  "a": [\n    1.5,\n    "\\u00fc"\n  ],\n  "b": 1\n}\n'
    with pytest.raises(TypeError):
        write_json(str(path), {"c": object()})
    assert json.loads(path.read_text())["b"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_nan_and_infinity_become_null(tmp_path):
    """JSON has neither: a reader other than Python's refuses the file."""
    write_json(str(tmp_path / "a.json"), {"scores": {"a": math.nan, "b": [1.5, (math.inf, None)]}, "c": "NaN"})

    def refuse(constant):
        raise AssertionError(constant)

    read_back = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert read_back == {"scores": {"a": None, "b": [1.5, [None, None]]}, "c": "NaN"}


LINES = strategies.lists(strategies.text("ab é,\r\x85\u2028", max_size=8), max_size=8).map("\n".join)
RECORDS = strategies.lists(strategies.lists(strategies.text('a"\n, é', max_size=6), min_size=2, max_size=2), max_size=6)


def of_ranges(content, cuts, quoted):
    edges = [0, *sorted(cuts), None]
    for start, end in itertools.pairwise(edges):
        yield from lines_between(io.BytesIO(content), start, end, quoted)


def positions(lines):
    return [sum(map(len, lines[:number])) for number in range(len(lines))]


@hypothesis.given(LINES, strategies.sets(strategies.integers(1, 60)))
def test_ranges_have_each_line_once(text, cuts):
    lines = io.BytesIO(text.encode()).readlines()
    assert list(of_ranges(text.encode(), cuts, False)) == list(zip(positions(lines), lines, strict=True))


@hypothesis.given(RECORDS, strategies.sets(strategies.integers(1, 80)))
def test_a_line_feed_between_quotes_ends_no_record(records, cuts):
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(records)
    found = list(of_ranges(file.getvalue().encode(), cuts, True))
    assert [next(csv.reader(io.StringIO(line.decode(), newline=""))) for _, line in found] == records
    assert [position for position, _ in found] == positions([line for _, line in found])


@pytest.mark.parametrize("start", range(1, 10))
def test_the_first_byte_decides(start):
    """Of two lines at bytes 0 and 4, the second is in the range only if the range begins at 4 or before."""
    found = list(lines_between(io.BytesIO(b"abc\ndef\n"), start))
    assert found == ([(4, b"def\n")] if start <= 4 else [])
