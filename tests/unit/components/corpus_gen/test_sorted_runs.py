"""Sorted runs return what was written, each document in exactly one bucket."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.errors import InputError
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.sorted_runs import (
    SLOTS_A_SPLIT,
    SPLITS,
    bucket_counts,
    hash_range,
    hash_slot,
    read_run,
    write_run,
)
from tests.support.examples.object_stores import SCHEMES, in_memory


def identity(number):
    return hashlib.sha256(str(number).encode()).digest()[:16]


def read_bucket(path, split, bucket, buckets):
    return list(read_run(str(path), *hash_range(split, bucket, buckets)))


@given(st.integers(1, SLOTS_A_SPLIT), st.data())
def test_buckets_partition_the_slots(buckets, data):
    split = data.draw(st.sampled_from(SPLITS))
    bucket = data.draw(st.integers(0, buckets - 1))
    first, last = hash_range(split, bucket, buckets)
    start = SPLITS.index(split) * SLOTS_A_SPLIT
    assert first < last
    assert bucket > 0 or first == start
    assert last == (hash_range(split, bucket + 1, buckets)[0] if bucket + 1 < buckets else start + SLOTS_A_SPLIT)


def test_splits_have_their_share_and_buckets_are_even():
    slots = [hash_slot(identity(i), 0.25) for i in range(20_000)]
    held_out = [slot for slot in slots if slot >= SLOTS_A_SPLIT]
    assert len(held_out) == pytest.approx(5000, abs=4 * (20_000 * 0.25 * 0.75) ** 0.5)
    for split, of_split in (("train", [s for s in slots if s < SLOTS_A_SPLIT]), ("eval", held_out)):
        ranges = [range(*hash_range(split, bucket, 5)) for bucket in range(5)]
        sizes = [sum(slot in slots for slot in of_split) for slots in ranges]
        assert sum(sizes) == len(of_split)
        expected = len(of_split) / 5
        assert max(abs(size - expected) for size in sizes) < 5 * expected**0.5


@pytest.mark.parametrize("buckets", [1, 3, 100])
def test_every_document_is_read_back_once(tmp_path, buckets):
    documents = [(hash_slot(identity(i), 0.3), b"document %d" % i) for i in range(500)]
    sizes = write_run(str(tmp_path / "a.run"), documents)
    found = [
        record
        for split in SPLITS
        for b in range(buckets)
        for record in read_bucket(tmp_path / "a.run", split, b, buckets)
    ]
    assert sorted(found) == sorted(record for _, record in documents)
    in_train = [record for slot, record in documents if slot < SLOTS_A_SPLIT]
    # 16 bytes for each TFRecord frame.
    assert sizes["train"] == sum(map(len, in_train)) + 16 * len(in_train)
    assert sum(sizes.values()) == sum(len(record) + 16 for _, record in documents)


def test_runs_do_not_depend_on_the_order_of_writing(tmp_path):
    documents = [(hash_slot(identity(i), 0.3), b"document %d" % i) for i in range(50)]
    write_run(str(tmp_path / "a.run"), documents)
    write_run(str(tmp_path / "b.run"), reversed(documents))
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.run", "b.run"]


def test_damage_is_reported_with_the_file(tmp_path):
    path = tmp_path / "a.run"
    write_run(str(path), [(5, b"a document")])
    path.write_bytes(path.read_bytes()[:-6] + b"xxxxxx")
    with pytest.raises(ValueError, match=r"a\.run: slots 0 to 16384: record 0: is damaged"):
        read_bucket(path, "train", 0, 1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_the_range_of_a_run_is_read_from_an_object_store(scheme, tmp_path, monkeypatch):
    documents = [(hash_slot(identity(i), 0.3), b"document %d" % i * 300) for i in range(2000)]
    write_run(str(tmp_path / "a.run"), documents)
    expected = read_bucket(tmp_path / "a.run", "train", 7, 100)
    store = in_memory(monkeypatch, scheme)
    store.write(f"{scheme}://bucket/a.run", (tmp_path / "a.run").read_bytes())
    found = read_bucket(f"{scheme}://bucket/a.run", "train", 7, 100)
    assert found == expected and len(found) > 5
    # Of 8 MB; the offsets of its slots, and its records.
    assert store.asked < sum(map(len, found)) + 20_000
    assert store.requests == {"get": 1, "read": 2}


def test_bucket_counts_bound_the_size_of_a_shard():
    settings = CorpusSettings(bucket_bytes=100)
    assert bucket_counts({"train": 800, "eval": 200}, settings) == {"train": 8, "eval": 2}
    assert bucket_counts({"train": 801, "eval": 201}, settings) == {"train": 9, "eval": 3}
    assert bucket_counts({}, settings) == {"train": 1, "eval": 1}
    with pytest.raises(InputError, match=r"corpus\.bucket_bytes=62 or more"):
        bucket_counts({"train": 1_000_000, "eval": 0}, CorpusSettings(bucket_bytes=1))
