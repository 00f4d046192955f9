"""The score of a speedrun: core-seconds until a held-out loss is reached."""

import argparse
import json
import math
import types

import pytest

from benchmarks.speedrun import speedrun
from benchmarks.speedrun.speedrun import core_seconds, run, table, train
from bert_keras import pretraining
from tests.unit.bert_keras.conftest import VOCABULARY, examples  # noqa: F401 (a fixture)

CURVE = [[100, 20.0, 5.0], [200, 40.0, 4.0], [300, 60.0, 3.0]]


@pytest.mark.parametrize(("target", "seconds"), [(4.5, 30.0), (4.0, 40.0), (3.2, 56.0), (2.9, math.inf)])
def test_core_seconds_are_interpolated_between_the_evaluations_around_the_target(target, seconds):
    assert core_seconds(CURVE, target) == pytest.approx(seconds)


def test_the_table_has_spread_ratio_and_the_seeds_that_reached_the_target(tmp_path, capsys):
    slower = [[step, 2 * seconds, loss] for step, seconds, loss in CURVE]
    never = [[step, seconds, loss + 2] for step, seconds, loss in CURVE]
    for name, seed, curve in (("new", 1, CURVE), ("new", 2, slower), ("old", 1, slower), ("flat", 1, never)):
        fields = {"name": name, "seed": seed, "settings": ["a.b=1"], "curve": curve, "target": 4.0}
        (tmp_path / f"{name}-{seed}.json").write_text(json.dumps(fields))
    table(argparse.Namespace(output=str(tmp_path), reference="old", target=4.0))
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| new | 2 of 2 | 60 (40 to 80) | 0.75 | 3.000 | a.b=1 |",
        "| old | 1 of 1 | 80 (80 to 80) | 1.00 | 3.000 | a.b=1 |",
        "| flat | 0 of 1 | inf (inf to inf) | inf | 5.000 | a.b=1 |",
    ]


@pytest.mark.parametrize(
    ("seeds", "elapsed", "cores"),
    [([1], False, [(0,)]), ([1, 2, 3], False, [(0,), (1,), (0,)]), ([1, 2], True, [(0, 1), (0, 1)])],
)
def test_each_seed_runs_once_on_a_core_or_with_elapsed_alone_on_all(tmp_path, monkeypatch, seeds, elapsed, cores):
    started, given = [], []

    def start(command, preexec_fn):
        started.append(int(command[command.index("--seeds", -3) + 1]))
        preexec_fn()
        return types.SimpleNamespace(poll=lambda: 0, returncode=0)

    monkeypatch.setattr(speedrun.subprocess, "Popen", start)
    monkeypatch.setattr(speedrun.os, "sched_setaffinity", lambda pid, cores: given.append(cores))
    monkeypatch.setattr(speedrun.time, "sleep", lambda seconds: None)
    run(argparse.Namespace(output=str(tmp_path), name="demo", seeds=seeds, cores=[0, 1], elapsed=elapsed))
    assert started == seeds and given == cores


@pytest.mark.parametrize("elapsed", [False, True])
def test_a_seed_trains_until_the_target_and_writes_its_curve(examples, tmp_path, monkeypatch, elapsed):  # noqa: F811
    monkeypatch.setattr(speedrun.time, "process_time", lambda: 5.0)
    monkeypatch.setattr(pretraining, "TrainingLoop", pretraining.TrainingLoop)  # `train` replaces it
    settings = [f"model.vocab_size={len(VOCABULARY)}", "model.num_hidden_layers=1", "training.num_train_steps=8"]
    settings += ["training.num_warmup_steps=1", "training.train_batch_size=8", "training.jit_compile=False"]
    fields = {"name": "tiny", "recipe": "tiny_cpu", "settings": settings, "seeds": [7], "every": 2, "elapsed": elapsed}
    train(argparse.Namespace(examples=examples.dir, output=str(tmp_path), target=100.0, **fields))
    written = json.loads((tmp_path / "tiny-7.json").read_text())
    assert written["seed"] == 7 and written["settings"] == settings
    ((step, seconds, loss),) = written["curve"]
    assert step == 2 and 0 < loss < 100
    assert (seconds == 5.0) is not elapsed and seconds > 0
