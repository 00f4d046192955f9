"""The stream of batches, and of dynamic masks, is a function of the seed and the step."""

import dataclasses
import io
import itertools
import math
import shutil
import time
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data import tfrecord_batches
from bert_keras.data.example_format import ExampleLayout, ExampleSpec, read_shards
from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from bert_keras.data.mixture import Source
from bert_keras.data.tfrecord_batches import (
    DynamicMasking,
    eval_batches,
    records_of_files,
    shard_files,
    shuffled,
    train_batches,
)
from bert_keras.errors import InputError
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.training.phases import ExampleSet

T, P = 16, 3
LAYOUT = ExampleLayout.bert(T, P)
SETTINGS = {"batch_size": 8, "first_example": 0, "seed": 1, "dynamic_masking": None}


def stream(examples, steps, **change):
    settings = SETTINGS | change
    sources = settings.pop("sources", None) or [Source("", read_shards(examples.dir, "train"))]
    return list(itertools.islice(train_batches(sources, LAYOUT, **settings), steps))


def rows(batches):
    keys = ("input_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")
    return [b"".join(b[k][i].tobytes() for k in keys) for b in batches for i in range(len(b["input_ids"]))]


def test_shapes_and_types(examples):
    (batch,) = stream(examples, 1)
    assert {k: (v.shape, v.dtype.name) for k, v in batch.items()} == {
        "input_ids": ((8, T), "int32"),
        "input_mask": ((8, T), "int32"),
        "segment_ids": ((8, T), "int32"),
        "masked_lm_positions": ((8, P), "int32"),
        "masked_lm_ids": ((8, P), "int32"),
        "masked_lm_weights": ((8, P), "float32"),
        "next_sentence_labels": ((8, 1), "int32"),
    }


def test_an_epoch_has_every_example_once_and_batches_reach_across_epochs(examples):
    everything = sorted(rows(stream(examples, 25, batch_size=4)))
    second = sorted(rows(stream(examples, 50, batch_size=4)[25:]))
    assert len(everything) == 100
    assert everything == second
    assert rows(stream(examples, 50, batch_size=4))[:100] != rows(stream(examples, 50, batch_size=4))[100:]


def test_each_epoch_has_its_own_order_of_files_and_within_them(examples, monkeypatch):
    shards = read_shards(examples.dir, "train")

    def two_epochs(shards):
        count = sum(shard.records for shard in shards)
        batches = train_batches([Source("", shards)], LAYOUT, **{**SETTINGS, "batch_size": 20})
        found = rows(list(itertools.islice(batches, count // 10)))
        return found[:count], found[count:]

    first, second = two_epochs(shards[:1])  # one file: the shuffle alone
    assert first != second
    monkeypatch.setattr("bert_keras.data.tfrecord_batches.SHUFFLE_BUFFER", 1)  # no shuffle: the files' order alone
    orders = {tuple(two_epochs(shards)[epoch]) for epoch in (0, 1)}
    assert len(orders) == 2


@pytest.mark.parametrize("first_step", [12, 13, 40])
def test_resuming_at_a_step_gives_the_batches_of_an_unbroken_run(examples, first_step):
    """100 examples in batches of 8: steps 12, 13 and 40 are around and beyond the ends of epochs."""
    unbroken = stream(examples, first_step + 5)[first_step:]
    resumed = stream(examples, 5, first_example=8 * first_step)
    assert rows(unbroken) == rows(resumed)


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_share_the_batches_of_one(examples, workers):
    """Rows 0 to 7 of each batch: of two workers the first has the first half."""
    parts = [stream(examples, 20, worker=worker, num_workers=workers) for worker in range(workers)]
    for batch, shares in zip(stream(examples, 20), zip(*parts, strict=True), strict=True):
        for name, values in batch.items():
            np.testing.assert_array_equal(np.concatenate([share[name] for share in shares]), values, err_msg=name)


def three_sources(examples):
    """Of 40, 40 and 20 examples, with weights of .3, .5 and .2."""
    shards = [shard for shard in read_shards(examples.dir, "train") if shard.records]
    return [Source(name, [shard], weight) for name, shard, weight in zip("abc", shards, (3, 5, 2), strict=True)]


def test_every_batch_has_the_share_of_each_source(examples):
    sources = three_sources(examples)
    mixed = rows(stream(examples, 20, sources=sources))
    # Each from its own stream, in order: of 160 examples the fourth, the seventh, the tenth, ... are the first's.
    places = []
    for n in range(160):
        first = math.floor((n + 1) * 0.3) > math.floor(n * 0.3)
        rest = n - math.floor(n * 0.3)
        second = math.floor((rest + 1) * (5 / 7)) > math.floor(rest * (5 / 7))
        places.append(0 if first else 1 if second else 2)
    assert places[:11] == [2, 1, 1, 0, 2, 1, 0, 1, 1, 0, 2]
    assert [places.count(source) for source in range(3)] == [48, 80, 32]
    alone = [iter(rows(stream(examples, 160, batch_size=1, sources=[source]))) for source in sources]
    in_turn = [next(alone[place]) for place in places]
    for first in range(0, 160, 8):  # in random order within a batch
        assert sorted(mixed[first : first + 8]) == sorted(in_turn[first : first + 8])


def test_even_and_odd_rows_have_the_share_of_each_source(examples):
    """A GPT-BERT predicts masked tokens in even rows and next tokens in odd ones."""
    two = [source._replace(weight=1) for source in three_sources(examples)[:2]]
    of_first = {*rows(stream(examples, 40, batch_size=1, sources=two[:1]))}
    for parity in (0, 1):
        share = np.mean([row in of_first for row in rows(stream(examples, 50, sources=two))[parity::2]])
        assert 0.4 < share < 0.6


@pytest.mark.parametrize("first_step", [7, 20])
def test_a_mixture_resumes_exactly(examples, first_step):
    change = {"sources": three_sources(examples)}
    whole = stream(examples, 25, **change)
    assert rows(stream(examples, 25 - first_step, first_example=8 * first_step, **change)) == rows(whole[first_step:])
    parts = [stream(examples, 5, worker=worker, num_workers=2, **change) for worker in range(2)]
    together = [row for batches in zip(*parts, strict=True) for batch in batches for row in rows([batch])]
    assert together == rows(whole[:5])


def test_the_seed_determines_the_order(examples):
    assert rows(stream(examples, 3)) == rows(stream(examples, 3))
    assert rows(stream(examples, 3)) != rows(stream(examples, 3, seed=2))


def test_files_are_read_ahead_side_by_side_in_the_order_of_one_thread(tmp_path, monkeypatch):
    """Files of 0 to 6 records, more of them than are open at a time, from a disk that answers now soon, now late."""
    files = [str(tmp_path / f"{number:02d}") for number in range(20)]
    for number, path in enumerate(files):
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(number * 5 % 7):
                writer.write(f"{number}-{record}".encode())
    one_thread = tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset, cycle_length=8)
    expected = list(one_thread.as_numpy_iterator())
    reading, most = [], []
    delays = np.random.default_rng(0).uniform(0.001, 0.01, 1000).tolist()

    class SlowFile(io.BytesIO):
        def read(self, size):
            reading.append(self)
            most.append(len(reading))
            time.sleep(delays.pop())
            reading.remove(self)
            return super().read(size)

    class SlowPath(type(tmp_path)):
        def open(self, mode):
            return SlowFile(super().open(mode).read())

    monkeypatch.setattr(tfrecord_batches, "epath", types.SimpleNamespace(Path=SlowPath))
    monkeypatch.setattr(tfrecord_batches, "BLOCK_BYTES", 7)  # less than a record
    assert [record.data for record in records_of_files(files)] == expected and len(expected) > 50
    assert max(most) > 1


def test_the_buffer_shuffles_all_records_and_repeats(monkeypatch):
    monkeypatch.setattr(tfrecord_batches, "SHUFFLE_BUFFER", 50)
    once = [list(shuffled(iter(range(500)), seed)) for seed in (1, 1, 2)]
    assert once[0] == once[1] != once[2]
    assert sorted(once[0]) == list(range(500)) != once[0]
    assert all(value <= place + 50 for place, value in enumerate(once[0]))  # none before it is in the buffer
    assert np.mean(np.abs(np.subtract(once[0], range(500)))) > 20
    assert [list(shuffled(iter(range(count)), 1)) for count in (0, 1)] == [[], [0]]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:-3], "record 39: is cut off"),
        (lambda data: data[:200] + b"?" + data[201:], "record 0: is damaged"),
    ],
)
def test_a_damaged_record_is_named_with_its_file(examples, tmp_path, damage, problem):
    shard = read_shards(examples.dir, "train")[0]
    (tmp_path / "shard").write_bytes(damage(Path(shard.path).read_bytes()))
    batches = train_batches([Source("", [shard._replace(path=str(tmp_path / "shard"))])], LAYOUT, **SETTINGS)
    with pytest.raises(InputError, match=rf"/shard, {problem}; restore the file, or make the examples again"):
        list(itertools.islice(batches, 5))


def test_a_record_of_another_layout_is_named_with_its_file(examples):
    path = sorted(shard_files(examples.eval))[0]
    with pytest.raises(InputError, match=rf"{path}, record 0: feature 'input_ids' has 16 values, not 8; make"):
        next(eval_batches([path], ExampleLayout.bert(8, P), batch_size=4))


def test_held_out_examples_come_once_in_order_with_the_rest(examples):
    batches = list(eval_batches(shard_files(examples.eval), LAYOUT, batch_size=8))
    assert [len(b["input_ids"]) for b in batches] == [8, 8, 4]
    raw = itertools.chain.from_iterable(tf.data.TFRecordDataset(f) for f in shard_files(examples.eval))
    ids = [tf.train.Example.FromString(r.numpy()).features.feature["input_ids"].int64_list.value for r in raw]
    np.testing.assert_array_equal(np.concatenate([b["input_ids"] for b in batches]), ids)


# ------------------------------------------------------------------ dynamic masking


def unmask(features):
    """Input ids with the originals put back (arrays of one example or of a batch)."""
    ids = features["input_ids"].copy()
    for row in np.ndindex(ids.shape[:-1]):
        real = features["masked_lm_weights"][row] > 0
        ids[(*row, features["masked_lm_positions"][row][real])] = features["masked_lm_ids"][row][real]
    return ids


@pytest.fixture(scope="module")
def unmasked(unmasked_examples):
    vocabulary = MaskingVocabulary.of(BertTokenizer(unmasked_examples.vocabulary, lower_case=True))
    masking = DynamicMasking(MaskingSettings(max_predictions_per_seq=P, when="dynamic"), vocabulary)
    return types.SimpleNamespace(dir=unmasked_examples.dir, train=unmasked_examples.train, masking=masking)


def dynamic(unmasked, steps, **change):
    return stream(unmasked, steps, dynamic_masking=unmasked.masking, **change)


def test_dynamic_masks_have_the_shapes_and_types_of_stored_ones(examples, unmasked):
    (ours,), (stored,) = dynamic(unmasked, 1), stream(examples, 1)
    assert {k: (v.shape, v.dtype) for k, v in ours.items()} == {k: (v.shape, v.dtype) for k, v in stored.items()}
    for stored_unmasked in (False, True):
        examples_set = ExampleSet.load(unmasked.dir if stored_unmasked else examples.dir)
        assert examples_set.row_shapes == {name: (v.shape[1:], v.dtype) for name, v in stored.items()}


def test_dynamic_masks_are_those_of_mask_tokens(unmasked):
    """One implementation of the rules, and the batch is the one that was stored."""
    plain = MaskingSettings(mask_fraction=0.0, keep_fraction=1.0, max_predictions_per_seq=P)
    originals = stream(unmasked, 3, dynamic_masking=DynamicMasking(plain, unmasked.masking.vocabulary))
    for step, (batch, original) in enumerate(zip(dynamic(unmasked, 3), originals, strict=True)):
        rng = np.random.default_rng([1, 8 * step])
        settings, vocabulary = unmasked.masking.settings, unmasked.masking.vocabulary
        expected = mask_tokens(original["input_ids"], original["input_mask"], rng, settings, vocabulary, P)
        for name in batch:
            np.testing.assert_array_equal(batch[name], {**original, **expected}[name], err_msg=name)


@pytest.mark.parametrize("first_step", [12, 40])
def test_resuming_at_a_step_gives_the_masks_of_an_unbroken_run(unmasked, first_step):
    unbroken = dynamic(unmasked, first_step + 5)[first_step:]
    assert rows(unbroken) == rows(dynamic(unmasked, 5, first_example=8 * first_step))


@pytest.mark.parametrize(("together", "random_tokens"), [(256, "vocabulary"), (4, "corpus"), (3, "corpus")])
def test_masks_do_not_depend_on_the_number_of_workers(unmasked, monkeypatch, together, random_tokens):
    """Also where a worker has a part of a block: with `corpus`, random tokens are those of rows of other workers."""
    monkeypatch.setattr(tfrecord_batches, "MASKED_TOGETHER", together)
    settings = dataclasses.replace(unmasked.masking.settings, random_tokens=random_tokens)
    masking = DynamicMasking(settings, unmasked.masking.vocabulary)
    alone = stream(unmasked, 6, dynamic_masking=masking)
    for workers, resumed in ((2, 0), (4, 2)):
        parts = [
            stream(
                unmasked, 6 - resumed, worker=worker, num_workers=workers, first_example=8 * resumed,
                dynamic_masking=masking,
            )
            for worker in range(workers)
        ]  # fmt: skip
        for batch, shares in zip(alone[resumed:], zip(*parts, strict=True), strict=True):
            for name, values in batch.items():
                np.testing.assert_array_equal(np.concatenate([share[name] for share in shares]), values, err_msg=name)


def test_each_epoch_has_other_masks(unmasked):
    """25 steps an epoch: the same examples, under other masks."""
    batches = dynamic(unmasked, 50, batch_size=4)
    first, second = (np.concatenate([unmask(b) for b in batches[s : s + 25]]) for s in (0, 25))
    assert sorted(map(bytes, first)) == sorted(map(bytes, second))
    masks = [
        {
            (ids.tobytes(), positions.tobytes())
            for b in batches[s : s + 25]
            for ids, positions in zip(unmask(b), b["masked_lm_positions"], strict=True)
        }
        for s in (0, 25)
    ]
    assert len(masks[0] & masks[1]) < len(masks[0]) / 2


@pytest.mark.parametrize("seed", [2, -1, 2**63 - 1])
def test_the_seed_determines_the_masks(unmasked, seed):
    assert rows(dynamic(unmasked, 3, seed=seed)) == rows(dynamic(unmasked, 3, seed=seed))
    # One batch of everything, so that its rows, sorted, do not depend on the order.
    masks = {s: sorted(rows(dynamic(unmasked, 1, batch_size=100, seed=s))) for s in (1, seed)}
    assert masks[1] != masks[seed]


def test_unmasked_examples_are_read_without_masks(unmasked):
    files = shard_files(unmasked.train)
    (batch,) = eval_batches(files, LAYOUT, batch_size=100, masked=False)
    assert set(batch) == {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    assert not (batch["input_ids"] == unmasked.masking.vocabulary.mask_id).any()


def test_the_name_of_a_folder_is_no_pattern(examples, tmp_path):
    shutil.copytree(examples.dir, tmp_path / "a[b]*")
    assert [len(read_shards(str(tmp_path / "a[b]*"), split)) for split in ("train", "eval")] == [3, 1]
    assert len(shard_files(str(tmp_path / "a[b]*" / "Split-train"))) == 3


def test_missing_shards_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing has no example shards"):
        shard_files(str(tmp_path / "nothing"))


def test_a_spec_of_another_version_is_refused(examples, tmp_path):
    (tmp_path / "example_spec.json").write_text('{"max_seq_length": 16}')
    with pytest.raises(ValueError, match=r"example_spec\.json has no 'max_predictions_per_seq'"):
        ExampleSpec.load(str(tmp_path))
