"""The loop learns, resumes exactly, and is the same mathematics on one device and on two."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from bert_keras.config import BertConfig, TrainingConfig
from bert_keras.errors import StageError
from bert_keras.features import ExampleSpec
from bert_keras.training_loop import TrainingLoop

MODEL = BertConfig(24, 32, 1, 2, 64, max_position_embeddings=16)
RUN = TrainingConfig(
    train_batch_size=16,
    num_train_steps=12,
    num_warmup_steps=3,
    learning_rate=5e-3,
    steps_per_execution=3,
    save_checkpoints_steps=6,
    eval_every_steps=6,
    eval_batch_size=8,
    eval_batches=2,
)


def loop(examples, directory, model=MODEL, **change):
    spec = ExampleSpec.load(examples.dir)
    return TrainingLoop(model, dataclasses.replace(RUN, **change), spec, examples.train, examples.eval, str(directory))


def log(directory, kind="train"):
    return [e for e in map(json.loads, (directory / "log.jsonl").read_text().splitlines()) if e["kind"] == kind]


def losses(directory):
    steps = [e["step"] for e in log(directory)]
    assert len(set(steps)) == len(steps)
    return {e["step"]: e["loss"] for e in log(directory)}


@pytest.fixture(scope="module")
def unbroken(examples, tmp_path_factory):
    """A finished run of 12 steps, with dropout."""
    directory = tmp_path_factory.mktemp("unbroken")
    model = loop(examples, directory).run()
    return directory, model.get_weights()


def test_it_learns(examples, tmp_path):
    """The sequences repeat, so a model that reads the context gets most masked words right."""
    quiet = dataclasses.replace(MODEL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    run = loop(
        examples,
        tmp_path,
        quiet,
        num_train_steps=400,
        num_warmup_steps=40,
        steps_per_execution=50,
        save_checkpoints_steps=400,
        eval_every_steps=200,
        jit_compile=True,
    )
    run.run()
    first, last = log(tmp_path)[0], log(tmp_path)[-1]
    assert first["mlm_loss"] > 2.5
    assert last["mlm_loss"] < 0.5
    assert last["mlm_accuracy"] > 0.9
    held_out = log(tmp_path, "eval")
    assert [e["step"] for e in held_out] == [200, 400]
    assert held_out[-1] | run.evaluate() == held_out[-1]


def test_a_killed_run_goes_on_exactly(examples, tmp_path, unbroken):
    """Stopped after 9 steps, the checkpoint is that of step 6: later losses and the weights are equal to the bit.

    With dropout: its random states are in the checkpoint too.
    """
    run = loop(examples, tmp_path)
    steps = run._train_steps

    def killed_after_nine(iterator, count):
        if int(run.step) >= 9:
            raise KeyboardInterrupt
        return steps(iterator, count)

    run._train_steps = killed_after_nine
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert list(losses(tmp_path)) == [3, 6, 9]
    resumed = loop(examples, tmp_path).run()
    directory, weights = unbroken
    assert losses(tmp_path) == losses(directory)
    for ours, theirs in zip(resumed.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_line_that_a_kill_cut_short_is_dropped(examples, tmp_path, unbroken):
    shutil.copytree(unbroken[0], tmp_path, dirs_exist_ok=True)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    loop(examples, tmp_path).run()
    assert list(losses(tmp_path)) == [3, 6, 9, 12]


def test_checkpoints_are_kept_by_policy(unbroken):
    kept = {p.stem for p in (unbroken[0] / "checkpoints").glob("*.index")}
    assert kept == {"ckpt-6", "ckpt-12"}


def test_tensorboard_logs_are_written(unbroken):
    assert {p.parent.name for p in (unbroken[0] / "tensorboard").rglob("events*")} == {"train", "eval"}


def test_the_same_seed_gives_the_same_run_another_another(examples, tmp_path, unbroken):
    loop(examples, tmp_path / "same").run()
    loop(examples, tmp_path / "other", seed=7).run()
    assert losses(tmp_path / "same") == losses(unbroken[0])
    assert losses(tmp_path / "other") != losses(unbroken[0])


@pytest.mark.parametrize("optimizer", ["bert_adam", "lamb"])
def test_two_devices_give_the_loss_of_one(examples, tmp_path, optimizer):
    """Examples have one to three predictions, so replicas have unequal weights: a mean of means would differ."""
    quiet = dataclasses.replace(MODEL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    one, two = tmp_path / "one", tmp_path / "two"
    loop(examples, one, quiet, optimizer=optimizer).run()
    mirrored = loop(examples, two, quiet, optimizer=optimizer, strategy="mirrored")
    assert mirrored.strategy.num_replicas_in_sync == 2
    mirrored.run()
    assert losses(two) == pytest.approx(losses(one), abs=1e-4)


def test_dropout_runs_on_two_devices(examples, tmp_path):
    loop(examples, tmp_path, strategy="mirrored", num_train_steps=3).run()
    assert np.isfinite(losses(tmp_path)[3])


def test_xla_gives_the_same_losses(examples, tmp_path):
    quiet = dataclasses.replace(MODEL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    loop(examples, tmp_path / "plain", quiet).run()
    loop(examples, tmp_path / "xla", quiet, jit_compile=True).run()
    assert losses(tmp_path / "xla") == pytest.approx(losses(tmp_path / "plain"), abs=1e-4)


def test_bfloat16_trains(examples, tmp_path, unbroken):
    model = loop(examples, tmp_path, mixed_precision="mixed_bfloat16").run()
    assert model.backbone.encoder_layers[0].compute_dtype == "bfloat16"
    assert {w.dtype.name for w in model.get_weights()} == {"float32"}
    assert losses(tmp_path)[12] == pytest.approx(losses(unbroken[0])[12], rel=0.1)


def test_clipping_is_by_the_global_norm(examples, tmp_path):
    """A tiny clip makes every update as small: Adam is blind to the gradient's scale, but for its epsilon."""
    quiet = dataclasses.replace(MODEL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    loop(examples, tmp_path / "clipped", quiet, clip_norm=1e-9, weight_decay=0.0).run()
    clipped = losses(tmp_path / "clipped")
    loop(examples, tmp_path / "free", quiet, weight_decay=0.0).run()
    assert clipped[3] - clipped[12] < 0.2 * (losses(tmp_path / "free")[3] - losses(tmp_path / "free")[12])


def test_an_infinite_loss_stops_with_the_step_and_the_rate(examples, tmp_path):
    with pytest.raises(StageError, match=r"the loss is (nan|inf) at step \d+ \(learning rate .*lower training"):
        loop(examples, tmp_path, learning_rate=1e30, num_warmup_steps=0).run()


def test_a_batch_that_does_not_divide_is_named(examples, tmp_path):
    with pytest.raises(ValueError, match=r"training\.train_batch_size is 15, which does not divide over 2 devices"):
        loop(examples, tmp_path, strategy="mirrored", train_batch_size=15)
