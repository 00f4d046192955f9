"""Shards and JSON files are there whole or not at all; counts add up."""

import json

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from components.shards import SumCounts, shard_name, write_json, write_shard


def read(path):
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def test_shard_name():
    assert shard_name("documents", 3, 10) == "documents-00003-of-00010.tfrecord"


def test_a_shard_replaces_an_older_one(tmp_path):
    path = tmp_path / "new folder" / "shard.tfrecord"
    write_shard(str(path), [b"a", b""])
    assert read(path) == [b"a", b""]
    write_shard(str(path), iter([b"b"]))
    assert read(path) == [b"b"]
    assert [p.name for p in path.parent.iterdir()] == ["shard.tfrecord"]


def test_no_records_make_an_empty_shard(tmp_path):
    write_shard(str(tmp_path / "shard"), [])
    assert (tmp_path / "shard").read_bytes() == b""


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_shard_that_fails_half_way_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "Split-train/shard.tfrecord"
    write_shard(str(path), [b"old"])
    seen = []

    def records():
        yield b"new"
        # TFX's components read every file of the folder, those with a dot in front too.
        seen.extend(path.parent.iterdir())
        raise error

    with pytest.raises(error):
        write_shard(str(path), records())
    assert seen == [path]
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path] and read(path) == [b"old"]


def test_json(tmp_path):
    path = tmp_path / "a.json"
    write_json(str(path), {"b": 1, "a": [1.5, "ü"]})
    assert path.read_text() == '{\n  "a": [\n    1.5,\n    "\\u00fc"\n  ],\n  "b": 1\n}\n'
    with pytest.raises(TypeError):
        write_json(str(path), {"c": object()})
    assert json.loads(path.read_text())["b"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_counts_add_up():
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        counts = [("train", {"a": 1, "b": 2}), ("eval", {"a": 5}), ("train", {"a": 10, "c": 1})]
        total = pipeline | beam.Create(counts) | SumCounts()
        assert_that(total, equal_to([{"train": {"a": 11, "b": 2, "c": 1}, "eval": {"a": 5}}]))
