"""The training loop: learning, exact resume, errors; on two devices: test_devices.py."""

import dataclasses
import itertools
import json
import os
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
from bert_keras.errors import Preempted, StageError
from bert_keras.models.task_models import BertForSentenceSimilarity
from bert_keras.tasks.objectives import vector_objective
from bert_keras.training.backends.devices import COUNTS
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.config import SecondPhase
from bert_keras.training.phases import phases_of
from tests.support.models.every_model import TINY, choices
from tests.support.models.small_training import QUIET, RUN, Descent, built, log, loop, losses, resume_from
from tests.support.models.training_arrays import largest_difference


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


class Reading:
    """Steps that train nothing: `rows` are the input ids that each would have."""

    model = None

    def __init__(self, model, optimizer, objective, config, strategy):
        self.step, self.rows, self._sums, self._seed = 0, [], objective.sums, config.seed

    def feed(self, phase, first_step):
        return phase.train_batches(first_step, self._seed)

    def __call__(self, batches, count):
        self.rows += [batch["input_ids"] for batch in itertools.islice(batches, count)]
        self.step += count
        return dict.fromkeys((*self._sums, *COUNTS), 1.0), False

    def evaluate(self, batches):
        return dict.fromkeys(self._sums, 1.0)

    def arrays(self):
        return {"step": np.asarray(self.step)}

    def set_arrays(self, arrays):
        self.step = int(arrays["step"])

    def request_stop(self):
        pass


@pytest.fixture
def rows_read(monkeypatch):
    """`rows_read(examples, directory, **changes)`: the input ids of each step of a run."""
    monkeypatch.setattr("bert_keras.training.backends.on_tensorflow.devices.TensorFlowSteps", Reading)

    def rows_read(examples, directory, **changes):
        run = loop(examples, directory, QUIET, **changes)
        run.run()
        return run.steps.rows

    return rows_read


def test_a_batch_ramp_reads_every_example_once_also_if_it_resumes(examples, tmp_path, rows_read):
    ramp = {"batch_ramp_from": 4, "batch_ramp_steps": 4, "save_checkpoints_steps": 3, "keep_checkpoint_max": 4}
    whole = rows_read(examples, tmp_path / "whole", **ramp)
    assert [len(rows) for rows in whole] == [4, 4, 8, 8, *[16] * 8]
    fours = rows_read(examples, tmp_path / "fours", train_batch_size=4, num_train_steps=38)
    np.testing.assert_array_equal(np.concatenate(whole), np.concatenate(fours))
    resume_from(tmp_path / "whole", 3, tmp_path / "resumed")
    for ours, theirs in zip(rows_read(examples, tmp_path / "resumed", **ramp), whole[3:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_run_on_a_mixture_resumes_exactly(examples, tmp_path, rows_read):
    """The three shards are two sources; with other weights other rows are read."""
    shutil.copytree(examples.dir, tmp_path / "named")
    figures = json.loads((tmp_path / "named" / "example_shards.json").read_text())
    train = [shard for shard in figures if shard["path"].startswith("Split-train")]
    for shard, source in zip(train, ("web", "books", "web"), strict=True):
        shard["source"] = source
    (tmp_path / "named" / "example_shards.json").write_text(json.dumps(figures))
    named, weights = types.SimpleNamespace(dir=str(tmp_path / "named")), ("books:3", "web:1")
    whole = rows_read(named, tmp_path / "whole", source_weights=weights)
    resume_from(tmp_path / "whole", 6, tmp_path / "resumed")
    for ours, theirs in zip(rows_read(named, tmp_path / "resumed", source_weights=weights), whole[6:], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    other = rows_read(named, tmp_path / "other", source_weights=("books:1", "web:3"))
    assert not any(map(np.array_equal, whole, other))


def test_another_seed_is_another_run(examples):
    """Other weights, and another order of the examples."""
    runs = [loop(examples, "", seed=seed) for seed in (1, 1, 7)]
    weights = [run.model.get_weights() for run in runs]
    first, same, other = (
        [next(run.phases[0].train_batches(0, run.config.seed))["input_ids"], weights[i][0]]
        for i, run in enumerate(runs)
    )
    assert all(map(np.array_equal, first, same)) and not any(map(np.array_equal, first, other))


def test_xla_gives_the_same_losses(examples, tmp_path, quiet_losses):
    loop(examples, tmp_path, QUIET, jit_compile=True).run()
    assert losses(tmp_path) == pytest.approx(quiet_losses, abs=1e-4)


def test_xla_computes_the_parts_of_a_batch_whose_rows_depend_on_each_other():
    """GradCache: of a part its vectors, then its gradients."""
    rows = {**choices((12, 9, 5, 7)), "weights": np.ones(4, "float32")}
    one_layer = dataclasses.replace(TINY, num_hidden_layers=1)
    config = dataclasses.replace(RUN, train_batch_size=4, gradient_accumulation_steps=2, clip_norm=1e9)
    (phase,) = phases_of(config, SecondPhase(), [ArrayExamples(rows, rows)])
    changed = []
    for jit_compile in (False, True):
        devices, model = open_devices(config), built(BertForSentenceSimilarity, one_layer, "mean")
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


def test_bfloat16_trains(examples, tmp_path, finished):
    model = loop(examples, tmp_path, mixed_precision="mixed_bfloat16").run()
    assert model.backbone.encoder_layers[0].compute_dtype == "bfloat16"
    assert {w.dtype.name for w in model.get_weights()} == {"float32"}
    assert losses(tmp_path)[12] == pytest.approx(losses(finished())[12], rel=0.1)


def test_clipping_is_by_the_global_norm(examples):
    """Of plain descent at the rate 1, a step is the gradient, scaled as a whole."""
    run = loop(examples, "", QUIET, clip_norm=0.5)
    run.steps._optimizer = Descent(1.0)
    variables = run.model.trainable_variables
    before = [np.asarray(variable) for variable in variables]
    gradients = [np.full(variable.shape, 1 + number, "float32") for number, variable in enumerate(variables)]
    norm = np.sqrt(sum(np.square(gradient).sum() for gradient in gradients))
    assert float(run.steps._clip_and_update([tf.constant(gradient) for gradient in gradients])) == pytest.approx(norm)
    for variable, old, gradient in zip(variables, before, gradients, strict=True):
        np.testing.assert_allclose(old - variable, 0.5 / norm * gradient, rtol=1e-3, atol=1e-6)


def test_accumulated_gradients_equal_those_of_the_whole_batch(examples):
    """Examples have one to three predictions, so parts have unequal weights."""
    run = loop(examples, "", QUIET, gradient_accumulation_steps=4)
    batch = {k: tf.constant(v) for k, v in next(run.phases[0].train_batches(0, run.config.seed)).items()}
    totals, call = run.objective.totals(batch), tf.constant(0, tf.int64)
    sums, gradients = run.steps._gradients(batch, totals, call)
    sums_of_parts, gradients_of_parts = run.steps._accumulated(batch, totals, call)
    assert {k: float(v) for k, v in sums_of_parts.items()} == pytest.approx({k: float(v) for k, v in sums.items()})
    for ours, theirs in zip(gradients_of_parts, gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


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
def test_a_signal_writes_a_checkpoint_that_resumes(examples, tmp_path, finished, number, named, capfd):
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
        loop(examples, tmp_path).run()
        assert largest_difference(tmp_path, finished()) == 0
        # Records of the same steps: the calls end at multiples of three again.
        ours, theirs = losses(tmp_path), losses(finished())
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


def test_displayed_metrics_are_logged(finished):
    for line in log(finished()):
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
