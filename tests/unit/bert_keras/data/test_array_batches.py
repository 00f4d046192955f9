"""Examples in memory: a stream indexed by example number, cut to length, its last held-out batch filled up."""

import dataclasses
import itertools

import numpy as np
import pytest

from bert_keras.data.array_batches import ArrayExamples
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import mlm
from bert_keras.training.config import SecondPhase
from bert_keras.training.loop import TrainingLoop
from bert_keras.training.phases import phases_of
from tests.support.models.small_training import QUIET, RUN, built, losses
from tests.support.processes import run_python

N, T = 10, 40
LENGTHS = np.array([3, 5, 16, 17, 9, 2, 33, 40, 4, 12])


def arrays(lengths=LENGTHS, choices=0):
    """Row n has n in `number` and in each of its tokens; `token_labels` are 1, but -1 at padding."""
    mask = (np.arange(T) < lengths[:, None]).astype("int32")
    number = np.arange(len(lengths), dtype="int32")
    sequences = {"input_ids": mask * (number[:, None] + 1), "input_mask": mask, "segment_ids": 0 * mask}
    if choices:  # the first of them is the longest
        short = (np.arange(T) < 1).astype("int32")
        sequences = {name: np.stack([value, *[short * value] * (choices - 1)], 1) for name, value in sequences.items()}
        return {**sequences, "number": number}
    return {**sequences, "number": number, "token_labels": 2 * mask - 1}


def taken(batches, count):
    return list(itertools.islice(batches, count))


def train(count, examples=None, batch_size=4, first_example=0, seed=3, **part):
    examples = examples or ArrayExamples(arrays(), arrays())
    return taken(examples.train_batches(batch_size=batch_size, first_example=first_example, seed=seed, **part), count)


def numbers(batches):
    return np.concatenate([batch["number"] for batch in batches]).tolist()


def test_epochs_are_permutations_and_batches_span_epochs():
    read = numbers(train(10))
    epochs = [read[start : start + N] for start in range(0, 40, N)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4
    assert numbers(train(10, seed=4)) != read
    assert numbers(train(2, batch_size=20)) == read  # two epochs a batch


@pytest.mark.parametrize("first_example", [4, 8, 12, 36])
def test_reading_resumes_exactly_at_any_example(first_example):
    whole = train(12)[first_example // 4 :]
    for ours, theirs in zip(train(len(whole), first_example=first_example), whole, strict=True):
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value)


@pytest.mark.parametrize("num_workers", [2, 4])
def test_parts_are_the_rows_of_the_global_batch(num_workers):
    streams = [train(5, worker=worker, num_workers=num_workers) for worker in range(num_workers)]
    for batch, parts in zip(train(5), zip(*streams, strict=True), strict=True):
        for name, value in batch.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), value)


def test_batch_length_is_the_longest_rounded_up_to_16():
    lengths = [batch["input_ids"].shape[1] for batch in taken(ArrayExamples(arrays(), arrays()).eval_batches(2), 5)]
    assert lengths == [16, 32, 16, 40, 16]  # of 5, 17, 9, 40 = T, 12
    for batch in train(20):
        longest = LENGTHS[batch["number"]].max()
        expected = min(T, -(-longest // 16) * 16)
        for name in ("input_ids", "input_mask", "segment_ids", "token_labels"):
            assert batch[name].shape == (4, expected)
        np.testing.assert_array_equal(batch["input_mask"].sum(1), LENGTHS[batch["number"]])


def test_a_gap_in_the_mask_does_not_shorten():
    row = {**arrays(np.array([20])), "input_mask": np.zeros((1, T), "int32")}
    row["input_mask"][0, [0, 18]] = 1
    (batch,) = taken(ArrayExamples(row, row).eval_batches(1), 1)
    assert batch["input_ids"].shape == (1, 32)


def test_static_shapes_keep_their_length():
    static = ArrayExamples(arrays(), arrays(), static_shape=True)
    (batch,) = train(1, static)
    assert static.row_shapes == {name: (value.shape[1:], value.dtype) for name, value in batch.items()}
    assert numbers(train(5, static)) == numbers(train(5))
    assert {batch["input_ids"].shape for batch in taken(static.eval_batches(4), 3)} == {(4, T)}


def test_choices_are_cut_to_the_longest_choice():
    of_three = arrays(choices=3)
    batches = taken(ArrayExamples(of_three, of_three).eval_batches(2), 5)
    assert [batch["input_mask"].shape for batch in batches] == [(2, 3, n) for n in (16, 32, 16, 40, 16)]


def test_rows_have_no_fixed_length_but_where_their_shapes_are_static():
    shapes = ArrayExamples(arrays(choices=3), arrays(choices=3)).row_shapes
    assert shapes["input_ids"] == ((3, None), np.dtype("int32"))
    assert shapes["number"] == ((), np.dtype("int32")) and shapes["weights"] == ((), np.dtype("float32"))
    assert ArrayExamples(arrays(), arrays()).row_shapes["token_labels"] == ((None,), np.dtype("int32"))


def test_the_last_held_out_batch_is_padded_with_rows_of_weight_0():
    batches = taken(ArrayExamples(arrays(), arrays()).eval_batches(4), 9)
    assert [len(batch["number"]) for batch in batches] == [4, 4, 4]
    weights = np.concatenate([batch["weights"] for batch in batches])
    np.testing.assert_array_equal(weights, [1.0] * N + [0.0] * 2)
    assert weights.dtype == np.float32
    assert numbers(batches)[:N] == list(range(N))
    labelled = np.concatenate([(batch["token_labels"] >= 0).sum(1) for batch in batches])
    np.testing.assert_array_equal(labelled, [*LENGTHS, 0, 0])


def test_given_weights_are_kept():
    own = {**arrays(), "weights": np.linspace(0, 1, N, dtype="float32")}
    (batch, *_) = train(1, ArrayExamples(own, own))
    np.testing.assert_array_equal(batch["weights"], own["weights"][batch["number"]])


@pytest.mark.parametrize("broken", [{"number": np.arange(3)}, {name: value[:0] for name, value in arrays().items()}])
def test_arrays_of_different_lengths_and_none_are_refused(broken):
    with pytest.raises(ValueError, match=r"rows; all must have the same number, at least one"):
        ArrayExamples(arrays() | broken, arrays())


def masked():
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 16, 30)
    lengths[:3] = 17, 20, 30  # some batches are longer
    mask = (np.arange(32) < lengths[:, None]).astype("int32")
    ids = rng.integers(5, 24, mask.shape).astype("int32") * mask
    positions = rng.integers(1, 4, (30, 2)).astype("int32")
    used = (rng.random((30, 2)) < 0.7).astype("float32")
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": 0 * mask,
        "masked_lm_positions": positions,
        "masked_lm_ids": np.take_along_axis(ids, positions, 1),
        "masked_lm_weights": used,
    }


def loop(directory, dropout=True, static_shape=False, **change):
    config = dataclasses.replace(RUN, **change)
    chance = 0.1 if dropout else 0.0
    model = dataclasses.replace(
        QUIET, max_position_embeddings=32, hidden_dropout_prob=chance, attention_probs_dropout_prob=chance
    )

    def create_model():
        model_ = built(BertForPreTraining, model, seed=config.seed)
        model_.backbone.pooler.trainable = model_.nsp_head.trainable = False
        return model_

    examples = ArrayExamples(masked(), masked(), static_shape)
    phases = phases_of(config, SecondPhase(), [examples])
    return TrainingLoop(create_model, mlm.OBJECTIVE, config, phases, str(directory))


@pytest.fixture(scope="module")
def cut_losses(tmp_path_factory):
    """Those of batches that are cut to their longest row, on one device without dropout."""
    directory = tmp_path_factory.mktemp("cut")
    loop(directory, dropout=False).run()
    return losses(directory)


@pytest.mark.slow
def test_a_run_on_batches_of_changing_length_resumes_exactly(tmp_path, cut_losses):
    """Twelve steps at once, or six and six: equal to the bit; and cut batches give the losses of whole ones."""
    loop(tmp_path / "whole").run()
    first = loop(tmp_path / "broken")
    first.phases = [dataclasses.replace(first.phases[0], end_step=6)]
    first.run()
    loop(tmp_path / "broken").run()
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")
    assert (
        len({batch["input_ids"].shape for batch in taken(first.phases[0].train_batches(0, first.config.seed), 12)}) > 1
    )
    loop(tmp_path / "static", dropout=False, static_shape=True).run()
    assert cut_losses == pytest.approx(losses(tmp_path / "static"), abs=1e-5)


@pytest.mark.parametrize("change", [{"gradient_accumulation_steps": 4}, {"jit_compile": True}])
def test_batches_of_changing_length_train_in_parts_and_compiled(tmp_path, cut_losses, change):
    loop(tmp_path, dropout=False, **change).run()
    assert losses(tmp_path) == pytest.approx(cut_losses, abs=1e-4)


# In a process of its own: on CPUs, TensorFlow mixes up the sums of several models' mirrored variables.
ON_TWO_DEVICES = """
import sys
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.unit.bert_keras.data import test_array_batches
test_array_batches.loop(sys.argv[1], dropout=False, strategy="mirrored").run()
"""


# Its parts: the rows of each device (above), two devices on ArrayExamples (test_objectives_on_devices.py), and batches
# of changing length on one (above).
@pytest.mark.slow
def test_batches_of_changing_length_train_on_two_devices(tmp_path, cut_losses):
    run_python("-c", ON_TWO_DEVICES, tmp_path)
    assert losses(tmp_path) == pytest.approx(cut_losses, abs=1e-4)


def test_weights_without_gradient_are_named(tmp_path):
    """Before weight decay takes them to 0."""
    run = loop(tmp_path)
    run.model.nsp_head.trainable = True
    with pytest.raises(ValueError, match=r"the mlm loss does not depend on .*seq_relationship/kernel"):
        run.run()
