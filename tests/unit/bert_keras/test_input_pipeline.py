"""The stream of batches is a function of the seed and the step."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.features import ExampleSpec, feature_spec
from bert_keras.input_pipeline import eval_batches, shard_files, train_batches

T, P = 16, 3


def stream(examples, steps, **change):
    settings = {
        "num_examples": 100,
        "batch_size": 8,
        "first_step": 0,
        "seed": 1,
        "max_seq_length": T,
        "max_predictions_per_seq": P,
    } | change
    batches = train_batches(shard_files(examples.train), **settings).take(steps)
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
        settings = {"num_examples": count, "batch_size": 20, "first_step": 0, "seed": 1}
        batches = train_batches(shard_files(pattern), **settings, max_seq_length=T, max_predictions_per_seq=P)
        found = rows([{k: v.numpy() for k, v in batch.items()} for batch in batches.take(count // 10)])
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
    resumed = stream(examples, 5, first_step=first_step)
    assert rows(unbroken) == rows(resumed)


def test_the_seed_decides_the_order(examples):
    assert rows(stream(examples, 3)) == rows(stream(examples, 3))
    assert rows(stream(examples, 3)) != rows(stream(examples, 3, seed=2))


def test_held_out_examples_come_once_in_order_with_the_rest(examples):
    batches = list(eval_batches(shard_files(examples.eval), batch_size=8, max_seq_length=T, max_predictions_per_seq=P))
    assert [len(b["input_ids"]) for b in batches] == [8, 8, 4]
    raw = itertools.chain.from_iterable(tf.data.TFRecordDataset(f) for f in shard_files(examples.eval))
    ids = [tf.io.parse_single_example(r, feature_spec(T, P))["input_ids"].numpy() for r in raw]
    np.testing.assert_array_equal(np.concatenate([b["input_ids"] for b in batches]), ids)


def test_no_shards_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no example shards match .*nothing"):
        shard_files(str(tmp_path / "nothing*"))


def test_a_spec_of_another_version_is_named(examples, tmp_path):
    (tmp_path / "example_spec.json").write_text('{"max_seq_length": 16}')
    with pytest.raises(ValueError, match=r"example_spec\.json has no 'max_predictions_per_seq'"):
        ExampleSpec.load(str(tmp_path))
