"""The training loop: learning, exact resume, errors; on two devices: test_devices.py."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import threading
import time
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data.array_batches import ArrayExamples
from bert_keras.errors import InputError, Preempted, StageError
from bert_keras.models.task_models import BertForSentenceSimilarity
from bert_keras.tasks.objectives import vector_objective
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.config import SecondPhase
from bert_keras.training.phases import phases_of
from tests.support.models.every_model import TINY, choices
from tests.support.models.small_training import QUIET, RUN, Descent, built, log, loop, losses, resume_from


@pytest.fixture(scope="module")
def unbroken(examples, tmp_path_factory):
    """A finished run of 12 steps, with dropout."""
    directory = tmp_path_factory.mktemp("unbroken")
    model = loop(examples, directory).run()
    return directory, model.get_weights()


def test_it_learns(examples, tmp_path):
    """The sequences repeat, so a model that reads the context gets most masked words right."""
    run = loop(
        examples,
        tmp_path,
        QUIET,
        num_train_steps=400,
        num_warmup_steps=40,
        steps_per_execution=50,
        save_checkpoints_steps=400,
        eval_every_steps=200,
    )
    run.run()
    first, last = log(tmp_path)[0], log(tmp_path)[-1]
    assert first["mlm_loss"] > 2.0
    assert last["mlm_loss"] < 0.5
    assert last["mlm_accuracy"] > 0.9
    held_out = log(tmp_path, "eval")
    assert [e["step"] for e in held_out] == [200, 400]
    assert held_out[-1] | run.evaluate(run.phases[-1]) == held_out[-1]


def test_a_killed_run_resumes_exactly(examples, tmp_path, unbroken):
    """Stopped after 9 steps, the checkpoint is that of step 6: later losses and the weights are equal to the bit.

    With dropout, whose masks are a function of the seed and the step.
    """
    resumed = killed_and_resumed(examples, tmp_path)
    directory, weights = unbroken
    assert losses(tmp_path) == losses(directory)
    for ours, theirs in zip(resumed.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_a_killed_run_on_a_mixture_resumes_exactly(examples, tmp_path):
    """The three shards are two sources; with other weights it is another run."""
    shutil.copytree(examples.dir, tmp_path / "named")
    figures = json.loads((tmp_path / "named" / "example_shards.json").read_text())
    train = [shard for shard in figures if shard["path"].startswith("Split-train")]
    for shard, source in zip(train, ("web", "books", "web"), strict=True):
        shard["source"] = source
    (tmp_path / "named" / "example_shards.json").write_text(json.dumps(figures))
    named, runs = types.SimpleNamespace(dir=str(tmp_path / "named")), [tmp_path / str(run) for run in range(3)]
    weights = {"source_weights": ("books:3", "web:1")}
    whole = loop(named, runs[0], **weights).run()
    resumed = killed_and_resumed(named, runs[1], **weights)
    assert losses(runs[1]) == losses(runs[0])
    for ours, theirs in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    loop(named, runs[2], source_weights=("books:1", "web:3")).run()
    assert losses(runs[2]) != losses(runs[0])


def killed_and_resumed(examples, directory, **change):
    run = loop(examples, directory, **change)
    calls = type(run.steps).__call__

    def killed_after_nine(steps, batches, count):
        if steps.step >= 9:
            raise KeyboardInterrupt
        return calls(steps, batches, count)

    with mock.patch.object(type(run.steps), "__call__", killed_after_nine), pytest.raises(KeyboardInterrupt):
        run.run()
    assert list(losses(directory)) == [3, 6, 9]
    return loop(examples, directory, **change).run()


def test_a_truncated_log_line_is_dropped(examples, tmp_path, unbroken):
    shutil.copytree(unbroken[0], tmp_path, dirs_exist_ok=True)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    loop(examples, tmp_path).run()
    assert list(losses(tmp_path)) == [3, 6, 9, 12]


def test_checkpoints_are_kept_by_policy(unbroken):
    kept = {p.stem for p in (unbroken[0] / "checkpoints").iterdir()}
    assert kept == {"ckpt-6", "ckpt-12"}


def test_a_folder_that_tensorflow_reads_as_a_pattern_is_refused(examples, tmp_path):
    with pytest.raises(InputError, match=r"a\[b\]: TensorFlow reads .*; train in another folder"):
        loop(examples, tmp_path / "a[b]")


def test_tensorboard_logs_are_written(unbroken):
    assert {p.parent.name for p in (unbroken[0] / "tensorboard").rglob("events*")} == {"train", "eval"}


def test_another_seed_is_another_run(examples):
    """Other weights, and another order of the examples; the same seed: `test_a_killed_run_resumes_exactly`."""
    runs = [loop(examples, "", seed=seed) for seed in (1, 1, 7)]
    weights = [run.model.get_weights() for run in runs]
    first, same, other = (
        [next(run.phases[0].train_batches(0, run.config.seed))["input_ids"], weights[i][0]]
        for i, run in enumerate(runs)
    )
    assert all(map(np.array_equal, first, same)) and not any(map(np.array_equal, first, other))


def test_xla_gives_the_same_losses(examples, tmp_path, quiet_losses):
    loop(examples, tmp_path, QUIET, jit_compile=True).run()
    assert losses(tmp_path) == pytest.approx(quiet_losses(), abs=1e-4)


def test_xla_computes_the_parts_of_a_batch_whose_rows_depend_on_each_other():
    """GradCache: of a part its vectors, then its gradients."""
    rows = {**choices((12, 9, 5, 7)), "weights": np.ones(4, "float32")}
    config = dataclasses.replace(RUN, train_batch_size=4, gradient_accumulation_steps=2, clip_norm=1e9)
    (phase,) = phases_of(config, SecondPhase(), [ArrayExamples(rows, rows)])
    changed = []
    for jit_compile in (False, True):
        devices, model = open_devices(config), built(BertForSentenceSimilarity, TINY, "mean")
        sgd = Descent(1.0)
        sgd.build(model.trainable_variables)
        with_xla = dataclasses.replace(config, jit_compile=jit_compile)
        steps = devices.train_steps(model, sgd, vector_objective, with_xla)
        steps(steps.feed(phase, 0), 1)
        changed.append(model.get_weights())
        (graph,) = steps._compiled._list_all_concrete_functions()
        parts = [f for f in graph.graph.as_graph_def().library.function if "_part_" in f.signature.name]
        by_xla = {f.signature.name.split("_part_")[1].split("_")[0] for f in parts if f.attr["_XlaMustCompile"].b}
        assert parts and by_xla == ({"outputs", "gradients"} if jit_compile else set())
    for plain, by_xla in zip(*changed, strict=True):
        np.testing.assert_allclose(by_xla, plain, atol=1e-5)


def test_bfloat16_trains(examples, tmp_path, unbroken):
    model = loop(examples, tmp_path, mixed_precision="mixed_bfloat16").run()
    assert model.backbone.encoder_layers[0].compute_dtype == "bfloat16"
    assert {w.dtype.name for w in model.get_weights()} == {"float32"}
    assert losses(tmp_path)[12] == pytest.approx(losses(unbroken[0])[12], rel=0.1)


def test_clipping_is_by_the_global_norm(examples, tmp_path, quiet_losses):
    """A tiny clip makes every update as small: Adam is blind to the gradient's scale, but for its epsilon."""
    loop(examples, tmp_path, QUIET, clip_norm=1e-9, weight_decay=0.0).run()
    clipped, free = losses(tmp_path), quiet_losses()
    assert clipped[3] - clipped[12] < 0.2 * (free[3] - free[12])


@pytest.mark.parametrize("strategy", ["one_device", pytest.param("mirrored", marks=pytest.mark.slow)])
def test_accumulated_gradients_equal_those_of_the_whole_batch(examples, tmp_path, quiet_losses, strategy):
    """Examples have one to three predictions, so parts have unequal weights."""
    loop(examples, tmp_path, QUIET, gradient_accumulation_steps=4, strategy=strategy).run()
    assert losses(tmp_path) == pytest.approx(quiet_losses(), abs=1e-5)


def test_parts_of_a_batch_drop_out_differently(examples):
    """Two rows, each the same: one batch of two, or two parts of one, must not draw the same mask for both."""
    run = loop(examples, "", gradient_accumulation_steps=2)
    row = next(run.phases[0].train_batches(0, run.config.seed))
    twice = {name: tf.repeat(value[:1], 2, axis=0) for name, value in row.items()}
    totals = [tf.constant(1.0), tf.constant(1.0)]
    one = {name: value[:1] for name, value in twice.items()}
    losses = [float(run.steps._gradients(one, totals, tf.constant(n, tf.int64))[0]["mlm_nll"]) for n in (0, 1, 0)]
    assert losses[0] == losses[2] != losses[1]
    both = float(run.steps._accumulated(twice, totals, tf.constant(0, tf.int64))[0]["mlm_nll"])
    assert both == pytest.approx(losses[0] + losses[1], rel=1e-5) != pytest.approx(2 * losses[0], rel=1e-5)


def test_a_batch_ramp_reads_every_example_once(examples):
    run = loop(examples, "", QUIET, batch_ramp_from=4, batch_ramp_steps=4)
    assert [(p.first_step, p.end_step, p.batch_size, p.first_example) for p in run.phases] == [
        (0, 2, 4, 0), (2, 4, 8, 8), (4, 12, 16, 24),
    ]  # fmt: skip
    fours = loop(examples, "", QUIET, train_batch_size=4)
    read = itertools.islice(fours.phases[0].train_batches(0, fours.config.seed), 14)
    rows = np.concatenate([batch["input_ids"] for batch in read])
    ramped = [next(phase.train_batches(phase.first_step, run.config.seed))["input_ids"] for phase in run.phases]
    np.testing.assert_array_equal(np.concatenate(ramped), rows[[*range(4), *range(8, 16), *range(24, 40)]])


def test_a_run_resumes_in_the_middle_of_a_batch_ramp(examples, tmp_path):
    ramp = {"batch_ramp_from": 8, "batch_ramp_steps": 4, "save_checkpoints_steps": 3}
    loop(examples, tmp_path / "whole", QUIET, **ramp).run()
    resume_from(tmp_path / "whole", 3, tmp_path / "resumed")
    loop(examples, tmp_path / "resumed", QUIET, **ramp).run()
    assert losses(tmp_path / "resumed").items() <= losses(tmp_path / "whole").items()


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(examples, tmp_path, unbroken, capfd):
    shutil.copytree(unbroken[0], tmp_path, dirs_exist_ok=True)
    data = tmp_path / "checkpoints" / "ckpt-12.npz"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0x40
    data.write_bytes(content)
    run = loop(examples, tmp_path)
    run._checkpoints.restore_newest()
    assert run.steps.step == 6
    assert re.search(r"checkpoints/ckpt-12.npz is damaged \(.*\); the one before it is used", capfd.readouterr().err)


@pytest.mark.parametrize("size", [0, 20, 1000])
def test_damaged_checkpoints_are_not_overwritten(examples, tmp_path, unbroken, size):
    shutil.copytree(unbroken[0], tmp_path, dirs_exist_ok=True)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(StageError, match=r"all 2 checkpoints of .*checkpoints are damaged; remove the folder"):
        loop(examples, tmp_path).run()


def test_batches_are_not_autotuned(examples, tmp_path, monkeypatch):
    """An iterator of an autotuned dataset may need a minute to end, and then so does a process stopped by SIGTERM."""
    run, made = loop(examples, tmp_path), []
    with_options = tf.data.Dataset.with_options
    monkeypatch.setattr(
        tf.data.Dataset, "with_options", lambda *words, **named: made.append(with_options(*words, **named)) or made[-1]
    )
    run.steps.feed(run.phases[-1], 0)
    assert made
    assert not any(dataset.options().autotune.enabled for dataset in made)


@pytest.mark.parametrize(
    ("number", "named"), [(signal.SIGTERM, "SIGTERM"), pytest.param(signal.SIGINT, "Ctrl-C", marks=pytest.mark.slow)]
)
def test_a_signal_writes_a_checkpoint_that_resumes(examples, tmp_path, unbroken, number, named, capfd):
    """It comes before the second call, of three steps, which ends after the first of them."""
    run = loop(examples, tmp_path)
    calls = type(run.steps).__call__

    def terminated_in_the_second_call(steps, batches, count):
        if steps.step == 3:
            os.kill(os.getpid(), number)
            while not float(steps._stop):
                time.sleep(0.001)
        return calls(steps, batches, count)

    before = signal.getsignal(number)
    with (
        mock.patch.object(type(run.steps), "__call__", terminated_in_the_second_call),
        pytest.raises(Preempted, match=f"stopped by {named} at step 4; run the same command to resume"),
    ):
        run.run()
    assert signal.getsignal(number) is before
    assert f"bert-tfx: {named}: stopping after the running step" in capfd.readouterr().err
    if number == signal.SIGTERM:  # both leave the same checkpoint
        resumed = loop(examples, tmp_path).run()
        for ours, theirs in zip(resumed.get_weights(), unbroken[1], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        # Records of the same steps: the calls end at multiples of three again.
        ours, theirs = losses(tmp_path), losses(unbroken[0])
        assert ours.keys() == {*theirs, 4} and all(ours[step] == theirs[step] for step in theirs if step != 6)
    else:
        assert (tmp_path / "checkpoints" / "ckpt-4.npz").exists()


def test_a_signal_stops_a_long_call_of_the_compiled_loop(examples, tmp_path):
    """Python's handlers wait for the end of the call."""
    many = dict.fromkeys(
        ("num_train_steps", "steps_per_execution", "save_checkpoints_steps", "eval_every_steps"), 20_000
    )
    run = loop(examples, tmp_path, QUIET, **many)

    def terminate():
        while run.steps.step < 5:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    with pytest.raises(Preempted, match=r"at step \d{1,4};"):
        run.run()


def test_displayed_metrics_are_logged(examples, tmp_path, unbroken):
    for line in log(unbroken[0]):
        assert 0 < line["useful_tokens_per_second"] < line["tokens_per_second"]
        assert 0 < line["model_flops_utilization"] < 1
        assert line["gradient_norm"] > 0


def test_an_infinite_loss_stops_with_the_step_and_the_rate(examples, tmp_path):
    with pytest.raises(
        StageError, match=r"(the loss is nan|is not finite) at step 1 \(learning rate .*lower training"
    ) as error:
        loop(examples, tmp_path, learning_rate=1e30, num_warmup_steps=0).run()
    (path,) = tmp_path.glob("not_finite_at_step_1.npz")
    assert str(path) in str(error.value)
    run = loop(examples, "")
    second = next(run.phases[0].train_batches(1, run.config.seed))
    np.testing.assert_array_equal(np.load(path)["input_ids"], second["input_ids"])
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_an_indivisible_batch_size_is_refused(examples, tmp_path):
    with pytest.raises(ValueError, match=r"training\.train_batch_size is 15, which does not divide over 2 devices"):
        loop(examples, tmp_path, strategy="mirrored", train_batch_size=15)
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps=3; give a multiple of 3$"):
        loop(examples, tmp_path, gradient_accumulation_steps=3)
