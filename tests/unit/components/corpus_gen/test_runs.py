"""Sorted runs: whatever is written comes back, each document in exactly one bucket."""

import hashlib
import types

import pytest
from apache_beam.io.gcp import gcsio
from hypothesis import given
from hypothesis import strategies as st

from components import shards
from components.corpus_gen.runs import (
    SLOTS_A_SPLIT,
    SPLITS,
    bucket_of_slot,
    read_run,
    slot_of,
    slots_of_bucket,
    write_run,
)


def identity(number):
    return hashlib.sha256(str(number).encode()).digest()[:16]


def read_bucket(path, split, bucket, buckets):
    return list(read_run(str(path), *slots_of_bucket(split, bucket, buckets)))


@given(st.integers(1, SLOTS_A_SPLIT), st.data())
def test_buckets_part_the_slots(buckets, data):
    split = data.draw(st.sampled_from(SPLITS))
    bucket = data.draw(st.integers(0, buckets - 1))
    first, last = slots_of_bucket(split, bucket, buckets)
    start = SPLITS.index(split) * SLOTS_A_SPLIT
    assert first < last
    assert bucket > 0 or first == start
    assert last == (slots_of_bucket(split, bucket + 1, buckets)[0] if bucket + 1 < buckets else start + SLOTS_A_SPLIT)
    for slot in (first, (first + last) // 2, last - 1):
        assert bucket_of_slot(slot, dict.fromkeys(SPLITS, buckets)) == (split, bucket)


def test_a_split_has_its_share_and_buckets_are_even():
    slots = [slot_of(identity(i), 0.25) for i in range(20_000)]
    held_out = [slot for slot in slots if slot >= SLOTS_A_SPLIT]
    assert len(held_out) == pytest.approx(5000, abs=4 * (20_000 * 0.25 * 0.75) ** 0.5)
    for split, of_split in (("train", [s for s in slots if s < SLOTS_A_SPLIT]), ("eval", held_out)):
        sizes = [0] * 5
        for slot in of_split:
            where, bucket = bucket_of_slot(slot, {"train": 5, "eval": 5})
            assert where == split
            sizes[bucket] += 1
        expected = len(of_split) / 5
        assert max(abs(size - expected) for size in sizes) < 5 * expected**0.5


@pytest.mark.parametrize("buckets", [1, 3, 100])
def test_every_document_comes_back_once(tmp_path, buckets):
    documents = [(slot_of(identity(i), 0.3), b"document %d" % i) for i in range(500)]
    sizes = write_run(str(tmp_path / "a.run"), documents)
    found = [
        record
        for split in SPLITS
        for b in range(buckets)
        for record in read_bucket(tmp_path / "a.run", split, b, buckets)
    ]
    assert sorted(found) == sorted(record for _, record in documents)
    in_train = [record for slot, record in documents if slot < SLOTS_A_SPLIT]
    # 16 bytes of a TFRecord's frame each.
    assert sizes["train"] == sum(map(len, in_train)) + 16 * len(in_train)
    assert sum(sizes.values()) == sum(len(record) + 16 for _, record in documents)


def test_the_order_of_writing_does_not_show(tmp_path):
    documents = [(slot_of(identity(i), 0.3), b"document %d" % i) for i in range(50)]
    write_run(str(tmp_path / "a.run"), documents)
    write_run(str(tmp_path / "b.run"), reversed(documents))
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.run", "b.run"]


def test_damage_names_the_file(tmp_path):
    path = tmp_path / "a.run"
    write_run(str(path), [(5, b"a document")])
    path.write_bytes(path.read_bytes()[:-6] + b"xxxxxx")
    with pytest.raises(ValueError, match=r"a\.run: slots 0 to 16384: record 0: is damaged"):
        read_bucket(path, "train", 0, 1)


class Bucket:
    """A bucket of Google Cloud Storage, as its client shows one; counts what is fetched."""

    def __init__(self, content):
        self.content, self.size, self.fetched = content, len(content), 0
        self.content_encoding = self.content_type = None

    def blob(self, name):
        return self

    def reload(self, **_):
        pass

    def download_as_bytes(self, start, end, **_):
        found = self.content[start : end + 1]
        self.fetched += len(found)
        return found


def test_of_a_run_on_cloud_storage_only_the_range_is_fetched(tmp_path, monkeypatch):
    documents = [(slot_of(identity(i), 0.3), b"document %d" % i * 300) for i in range(2000)]
    write_run(str(tmp_path / "a.run"), documents)
    expected = read_bucket(tmp_path / "a.run", "train", 7, 100)
    bucket = Bucket((tmp_path / "a.run").read_bytes())
    client = types.SimpleNamespace(bucket=lambda name: bucket)
    monkeypatch.setattr(gcsio, "create_storage_client", lambda *_, **__: client)
    monkeypatch.setattr(shards, "_gcs", gcsio.GcsIO)
    found = list(read_run("gs://bucket/a.run", *slots_of_bucket("train", 7, 100)))
    assert found == expected and len(found) > 5
    # Of 8 MB.
    assert bucket.fetched < sum(map(len, found)) + 20_000
