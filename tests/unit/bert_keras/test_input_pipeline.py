"""The stream of batches, and of dynamic masks, is a function of the seed and the step."""

import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.features import ExampleLayout, ExampleSpec, feature_spec
from bert_keras.input_pipeline import DynamicMasking, eval_batches, shard_files, train_batches
from bert_keras.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from bert_keras.tokenizer import BertTokenizer

T, P = 16, 3
LAYOUT = ExampleLayout.bert(T, P)


def stream(examples, steps, **change):
    settings = {
        "num_examples": 100,
        "batch_size": 8,
        "first_example": 0,
        "seed": 1,
        "dynamic_masking": None,
    } | change
    batches = train_batches(shard_files(examples.train), LAYOUT, **settings).take(steps)
    return [{k: v.numpy() for k, v in batch.items()} for batch in batches]


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
    def two_epochs(pattern, count):
        files = types.SimpleNamespace(train=pattern)
        found = rows(stream(files, count // 10, num_examples=count, batch_size=20))
        return found[:count], found[count:]

    first, second = two_epochs(examples.train.replace("*", "*00000*"), 40)  # one file: the shuffle alone
    assert first != second
    monkeypatch.setattr("bert_keras.input_pipeline.SHUFFLE_BUFFER", 1)  # no shuffle: the files' order alone
    orders = {tuple(two_epochs(examples.train, 100)[epoch]) for epoch in (0, 1)}
    assert len(orders) == 2


@pytest.mark.parametrize("first_step", [1, 12, 13, 40])
def test_resuming_at_a_step_gives_the_batches_of_an_unbroken_run(examples, first_step):
    """100 examples in batches of 8: steps 12, 13 and 40 are around and beyond the ends of epochs."""
    unbroken = stream(examples, first_step + 5)[first_step:]
    resumed = stream(examples, 5, first_example=8 * first_step)
    assert rows(unbroken) == rows(resumed)


@pytest.mark.parametrize(("workers", "replicas"), [(2, 1), (1, 4), (2, 2)])
def test_workers_and_devices_share_the_batches_of_one(examples, workers, replicas):
    """Rows 0 to 7 of each batch: worker 0 has the first half, its first device the first half of that."""
    parts = [
        np.stack([batch["input_ids"] for batch in stream(examples, 20 * replicas, worker=worker, **shares)])
        for shares in [{"num_workers": workers, "replicas": replicas}]
        for worker in range(workers)
    ]
    shape = (workers, 20, replicas, 8 // workers // replicas, T)
    joined = np.reshape(parts, shape).swapaxes(0, 1).reshape(20, 8, T)
    np.testing.assert_array_equal(joined, [batch["input_ids"] for batch in stream(examples, 20)])


def test_the_seed_decides_the_order(examples):
    assert rows(stream(examples, 3)) == rows(stream(examples, 3))
    assert rows(stream(examples, 3)) != rows(stream(examples, 3, seed=2))


def test_held_out_examples_come_once_in_order_with_the_rest(examples):
    batches = list(eval_batches(shard_files(examples.eval), LAYOUT, batch_size=8))
    assert [len(b["input_ids"]) for b in batches] == [8, 8, 4]
    raw = itertools.chain.from_iterable(tf.data.TFRecordDataset(f) for f in shard_files(examples.eval))
    ids = [tf.io.parse_single_example(r, feature_spec(LAYOUT, masked=True))["input_ids"].numpy() for r in raw]
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
    return types.SimpleNamespace(train=unmasked_examples.train, masking=masking)


def dynamic(unmasked, steps, **change):
    return stream(unmasked, steps, dynamic_masking=unmasked.masking, **change)


def test_dynamic_masks_have_the_shapes_and_types_of_stored_ones(examples, unmasked):
    (ours,), (stored,) = dynamic(unmasked, 1), stream(examples, 1)
    assert {k: (v.shape, v.dtype) for k, v in ours.items()} == {k: (v.shape, v.dtype) for k, v in stored.items()}
    settings = {"num_examples": 100, "batch_size": 8, "first_example": 0, "seed": 1}
    specs = [
        train_batches(shard_files(x.train), LAYOUT, **settings, dynamic_masking=masking).element_spec
        for x, masking in ((examples, None), (unmasked, unmasked.masking))
    ]
    assert specs[0] == specs[1]  # static shapes too, which compiled steps need


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


@pytest.mark.parametrize("first_step", [1, 12, 13, 40])
def test_resuming_at_a_step_gives_the_masks_of_an_unbroken_run(unmasked, first_step):
    unbroken = dynamic(unmasked, first_step + 5)[first_step:]
    assert rows(unbroken) == rows(dynamic(unmasked, 5, first_example=8 * first_step))


def test_each_epoch_masks_anew(unmasked):
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
def test_the_seed_decides_the_masks(unmasked, seed):
    assert rows(dynamic(unmasked, 3, seed=seed)) == rows(dynamic(unmasked, 3, seed=seed))
    # One batch of everything, so that its rows, sorted, do not depend on the order.
    masks = {s: sorted(rows(dynamic(unmasked, 1, batch_size=100, seed=s))) for s in (1, seed)}
    assert masks[1] != masks[seed]


def test_unmasked_examples_are_read_without_masks(unmasked):
    files = shard_files(unmasked.train)
    (batch,) = eval_batches(files, LAYOUT, batch_size=100, masked=False)
    assert set(batch) == {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    assert not (batch["input_ids"].numpy() == unmasked.masking.vocabulary.mask_id).any()


def test_no_shards_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no example shards match .*nothing"):
        shard_files(str(tmp_path / "nothing*"))


def test_a_spec_of_another_version_is_named(examples, tmp_path):
    (tmp_path / "example_spec.json").write_text('{"max_seq_length": 16}')
    with pytest.raises(ValueError, match=r"example_spec\.json has no 'max_predictions_per_seq'"):
        ExampleSpec.load(str(tmp_path))
