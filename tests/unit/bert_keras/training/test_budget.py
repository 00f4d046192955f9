"""A budget in place of a number of steps: what fits, what a resumed run keeps, and what is refused."""

import dataclasses
import json
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.pretraining import pretrain
from bert_keras.training import budget as module
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.budget import Budget, Costs
from bert_keras.training.config import SecondPhase, TrainingConfig, with_steps
from bert_keras.training.flops import training_flops
from bert_keras.training.log import TrainingLog
from bert_keras.training.phases import PhaseCost, phases_of
from tests.support.models.small_training import QUIET, built, loop
from tests.unit.bert_keras.test_pretraining import pretrain_job

EXAMPLES = [types.SimpleNamespace(max_seq_length=T, max_predictions_per_seq=P) for T, P in ((64, 10), (128, 20))]
# A tenth of the steps warms up, a fifth ramps from 4 rows over 8 to 16, a quarter is on longer rows.
SHARES = TrainingConfig(
    train_batch_size=16, num_train_steps=1000, num_warmup_steps=100, batch_ramp_from=4, batch_ramp_steps=200,
    freeze_layers=1, freeze_steps=50, eval_every_steps=100, save_checkpoints_steps=250,
)  # fmt: skip
LONGER = SecondPhase(num_train_steps=250, train_batch_size=4, max_seq_length=128, max_predictions_per_seq=20)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("2h", (7200, "s")), ("30min", (1800, "s")), ("90 s", (90, "s")), ("1.5 h", (5400, "s")),
        ("16 core-hours", (57600, "core-seconds")), ("2.5core-minutes", (150, "core-seconds")),
        ("90 core-seconds", (90, "core-seconds")), ("1e18 FLOPs", (1e18, "FLOPs")), ("2.5E+9flops", (2.5e9, "FLOPs")),
    ],
)  # fmt: skip
def test_units(text, limit):
    assert TrainingConfig(budget=text).budget_limit == limit
    assert TrainingConfig().budget_limit is None


@pytest.mark.parametrize("text", ["2", "h", "", "2 hours", "-2h", "0h", "nan h", "1e999 FLOPs", "2h 30min"])
def test_malformed_budgets_are_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^training\.budget is .*; it must be a number above 0 with h, min or s, "):
        TrainingConfig(budget=text)


def test_what_is_counted_in_steps_keeps_its_share():
    assert with_steps(SHARES, LONGER, 1000) == (SHARES, LONGER)
    training, second = with_steps(SHARES, LONGER, 3000)
    assert (training.num_train_steps, training.num_warmup_steps, training.freeze_steps) == (3000, 300, 150)
    assert (training.batch_ramp_steps, second.num_train_steps) == (600, 750)
    assert (training.eval_every_steps, training.save_checkpoints_steps) == (100, 250)
    # Never none of what the recipe has, and never some of what it has not.
    training, second = with_steps(SHARES, LONGER, 1)
    assert (training.num_warmup_steps, training.batch_ramp_steps, second.num_train_steps) == (1, 1, 1)
    training, second = with_steps(TrainingConfig(num_warmup_steps=0), SecondPhase(), 20)
    assert (training.num_warmup_steps, training.freeze_steps, second.num_train_steps) == (0, 0, 0)


def opened(directory, text, **changes):
    config = dataclasses.replace(SHARES, budget=text, **changes)
    return Budget(str(directory), config, LONGER, EXAMPLES, open_devices(SHARES))


def read(directory):
    (path,) = Path(directory).glob("**/budget.json")
    return json.loads(path.read_text())


def test_flops_are_counted_exactly(tmp_path, capsys):
    """The most steps whose matrix products fit; a resumed run keeps them, and none are measured."""
    config = BertConfig(24, 32, 1, 2, 64, max_position_embeddings=128)
    model = built(BertForPreTraining, config, seed=1)

    def flops(steps):
        return sum(
            (phase.end_step - phase.first_step)
            * phase.batch_size
            * training_flops(config, phase.examples.max_seq_length, phase.examples.max_predictions_per_seq)
            for phase in phases_of(*with_steps(SHARES, LONGER, steps), EXAMPLES)
        )

    budget = opened(tmp_path, "1e11 FLOPs")
    training, second = budget.fix(lambda _, phases, folder: types.SimpleNamespace(model=model, phases=phases))
    steps = training.num_train_steps
    assert flops(steps) <= 1e11 < flops(steps + 1) and steps > 100
    assert (training, second) == with_steps(dataclasses.replace(SHARES, budget="1e11 FLOPs"), LONGER, steps)
    budget.note(steps)
    assert read(tmp_path)["used"] == pytest.approx(flops(steps), rel=1e-12)
    assert f"budget: used {flops(steps):.4g} of 1e+11 FLOPs (" in capsys.readouterr().out
    # Another one is begun with another number; this one is not asked.
    assert opened(tmp_path, "1e11 FLOPs").fix(None) == (training, second)


@pytest.mark.parametrize("ramp_steps", [1, 2, 1000])
def test_all_batch_sizes_of_a_ramp_have_a_cost(tmp_path, ramp_steps):
    """From 2 rows over 4 and 8 to 16: as given, two steps are too few for all, and 1,000 leave none for 16."""
    model = built(BertForPreTraining, BertConfig(24, 32, 1, 2, 64, max_position_embeddings=128), seed=1)
    budget = opened(tmp_path, "1e11 FLOPs", batch_ramp_from=2, batch_ramp_steps=ramp_steps)
    training, _ = budget.fix(lambda _, phases, folder: types.SimpleNamespace(model=model, phases=phases))
    assert training.num_train_steps > 100
    costs = read(tmp_path)["costs"]["phases"]
    assert [(cost["batch_size"], cost["max_seq_length"]) for cost in costs] == [
        (2, 64), (4, 64), (8, 64), (16, 64), (4, 128),
    ]  # fmt: skip


class Timed:
    """A loop that costs what it says, on a clock of its own."""

    def __init__(self, monkeypatch, each, checkpoint, spent):
        self.now, self.each, self.checkpoint, self.spent = 1000.0, each, checkpoint, spent
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def create(self, training, phases, folder):
        self.now += 2.0  # to build the model
        self.phases = phases
        return self

    def measure(self, clock, enough):
        """5 % of 1,000 s are 12.5 s for each of four phases, and 20 steps; at half of the budget it ends."""
        started = clock()
        assert not enough(started - 12.4, 100) and not enough(started - 12.6, 19)
        assert enough(started - 12.6, 20) and not enough(started - 400.0, 19)
        self.now += 500 - started
        assert enough(started, 1)
        self.now += started - 500 + self.spent
        return self.each, self.checkpoint


def test_all_that_takes_time_is_counted(tmp_path, monkeypatch, capsys):
    """1,000 s. Spent: 2 + 47.95 s. To come: 2 s, 10 + 20 + 30 + 40 s of compilation: 848.05 s are left.

    A step costs 0.1 in a tenth of the steps (batches of 4), 0.2 in a tenth (8), 0.4 in 55 % (16) and 0.8 in a quarter:
    0.45. Each 100 steps and at the end an evaluation of 1 s, each 250 and at the end a checkpoint of 2 s: 0.468 in all.
    """
    each = [PhaseCost(4, 64, 10, 0.1, 1), PhaseCost(8, 64, 20, 0.2, 1), PhaseCost(16, 64, 30, 0.4, 1)]
    timed = Timed(monkeypatch, [*each, PhaseCost(4, 128, 40, 0.8, 1)], 2.0, spent=47.95)
    budget = opened(tmp_path, "1000s")
    training, _ = budget.fix(timed.create)
    steps = training.num_train_steps

    def left(steps):
        phases = phases_of(*with_steps(SHARES, LONGER, steps), EXAMPLES)
        rates = dict(zip([(c.batch_size, c.max_seq_length) for c in timed.each], (0.1, 0.2, 0.4, 0.8), strict=True))
        trained = sum((p.end_step - p.first_step) * rates[p.batch_size, p.examples.max_seq_length] for p in phases)
        return 848.05 - trained - np.ceil(steps / 100) - 2 * np.ceil(steps / 250)

    assert left(steps) >= 0 > left(steps + 1)
    assert 1800 <= steps < 1812
    assert f"budget: {steps:,} steps; s a step: 0.1 of 4 x 64 tokens, 0.2 of 8 x 64 tokens" in capsys.readouterr().out
    timed.now += 900
    budget.note(steps - 7)
    assert read(tmp_path)["used"] == pytest.approx(949.95)
    assert "used" not in capsys.readouterr().out
    # Killed: the next process adds to it, on a machine of another speed.
    timed.now += 7000
    again = opened(tmp_path, "1000s")
    assert again.fix(None) == (training, budget.fix(None)[1])
    timed.now += 30
    again.note(steps)
    assert read(tmp_path)["used"] == pytest.approx(979.95)
    assert "budget: used 980 of 1000 s (98.0%)" in capsys.readouterr().out


def test_a_budget_that_fits_too_few_steps_is_refused(tmp_path, monkeypatch):
    each = [PhaseCost(size, 64, 50, 20, 1) for size in (4, 8, 16)] + [PhaseCost(4, 128, 50, 20, 1)]
    timed = Timed(monkeypatch, each, 2.0, spent=500.0)
    with pytest.raises(
        InputError, match=r"^training.budget is 1000s: 1[0-9] steps fit into it, fewer than 20; give at "
    ):
        opened(tmp_path, "1000s").fix(timed.create)
    assert not list(tmp_path.glob("budget.json"))


def test_flops_of_other_models_are_unknown(tmp_path):
    other = types.SimpleNamespace(model=tf.keras.Model(), phases=phases_of(SHARES, LONGER, EXAMPLES))
    with pytest.raises(InputError, match=r"FLOPs of .* are unknown; give hours or core-hours"):
        opened(tmp_path, "1e11 FLOPs").fix(lambda *_: other)


def test_a_real_loop_is_measured(examples, tmp_path):
    """By a clock that counts its readings, one after each lap, and one that finds the steps to be enough."""
    readings = iter(range(1000))
    measured, checkpoint = loop(examples, tmp_path, QUIET).measure(
        lambda: next(readings), lambda started, steps: steps >= 20 and next(readings) > started
    )
    (cost,) = measured
    # Calls of 1, 1, 2, 3, 3, ... steps, 22 of them, and one call more, before which that was found.
    assert cost == PhaseCost(16, 16, pytest.approx(1 - 2 / 25), pytest.approx(2 / 25), 1)
    assert checkpoint == 1


@pytest.fixture
def exported(monkeypatch):
    """The weights of each model that would be exported."""
    weights = []
    monkeypatch.setattr(
        "bert_keras.pretraining.export_with_examples", lambda model, *_, **__: weights.append(model.get_weights())
    )
    return weights


def job_of(examples, folder, **training):
    job = pretrain_job(examples.dir, folder)
    settings = {"num_train_steps": 400, "num_warmup_steps": 100, "save_checkpoints_steps": 10, **training}
    return dataclasses.replace(job, training=dataclasses.replace(job.training, **settings))


def test_a_killed_run_has_the_weights_of_its_number_of_steps(examples, tmp_path, monkeypatch, exported):
    """As if the number, and a quarter of it as warm-up, had been given; of the measuring nothing is left."""
    monkeypatch.setattr(module, "_SHARE", 0.0)
    monkeypatch.setattr(Costs, "of", lambda costs, config, phases, last: 100.0 * last)
    write = TrainingLog.write

    def killed(log, kind, step, metrics):
        if "measuring" not in log._file._path and step == 16:
            raise KeyboardInterrupt
        write(log, kind, step, metrics)

    job = job_of(examples, tmp_path / "budget", budget="5000 core-seconds")
    with monkeypatch.context() as kill:
        kill.setattr(TrainingLog, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(job)
    begun = read(tmp_path / "budget" / "training")
    assert 0 < begun["used"] < begun["limit"]
    pretrain(job)
    account = read(tmp_path / "budget" / "model_run")
    assert account == {**begun, "used": account["used"]} and account["used"] > begun["used"]
    steps = account["num_train_steps"]
    pretrain(job_of(examples, tmp_path / "steps", num_train_steps=steps, num_warmup_steps=round(steps / 4)))
    for ours, theirs in zip(*exported, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    names = [
        {path.name for path in (tmp_path / run / "training").glob("*/**/*") if "events" not in path.name}
        for run in ("budget", "steps")
    ]
    assert names[0] - names[1] == {"budget.json"} and names[1] <= names[0]
