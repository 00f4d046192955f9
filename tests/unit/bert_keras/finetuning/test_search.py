"""Grid search, restarts and ensembles: what is tried, what is kept, what is told, and how a stopped search goes on."""

import dataclasses
import itertools
import json
import math
import weakref
from pathlib import Path

import numpy as np
import pytest

from bert_keras.errors import Diverged, InputError, Preempted, StageError
from bert_keras.finetuning import fine_tuner as fine_tuner_module
from bert_keras.finetuning import training as training_module
from bert_keras.finetuning.fine_tuner import FineTuner
from bert_keras.finetuning.finetune import finetune
from bert_keras.finetuning.init_checkpoint import init_checkpoint
from bert_keras.finetuning.restarts import train_restarts
from bert_keras.finetuning.search import search
from bert_keras.jobs import FinetuneJob
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, SearchSettings, TaskSettings
from bert_keras.training.backends.opening import open_devices
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.unit.bert_keras.finetuning.test_finetune import CONFIG, SPLITS, TASK, TOKENIZER

SETTINGS = TaskSettings(max_seq_length=16)
DEPTH = depth_of(CONFIG, 16)
RUN = FineTuningConfig(num_train_epochs=20.0, train_batch_size=8, learning_rate=5e-3, eval_batch_size=8, seed=7)
GRID = SearchSettings(train_batch_size=(8, 16), learning_rate=(1e-9, 5e-3), num_train_epochs=(10.0,))


@pytest.fixture
def fine_tuner(tmp_path):
    splits = {"train": SPLITS["train"], "eval": SPLITS["eval"]}
    start = init_checkpoint(CONFIG, TOKENIZER)
    return FineTuner(TASK, SETTINGS, start, splits, str(tmp_path / "training"), "one", "two")


@pytest.fixture
def scored(fine_tuner, monkeypatch):
    """`scored(what)`: trainings take no time and score `what(config)`; returns the configurations that were trained."""

    def scored(what):
        trained = []

        def fine_tune(task, settings, config, start, train, held_out, directory, devices):
            trained.append(config)
            (Path(directory) / "checkpoints").mkdir(parents=True, exist_ok=True)
            return what(config)

        monkeypatch.setattr(fine_tuner_module.gc, "collect", lambda: None)  # half a second each
        monkeypatch.setattr(fine_tuner_module, "fine_tune", fine_tune)
        monkeypatch.setattr(FineTuner, "scores", lambda self, trained, batch_size: {"accuracy": trained.model})
        return trained

    return scored


def test_the_better_learning_rate_is_found_and_only_its_model_kept(fine_tuner, monkeypatch):
    models, alive = [], []

    def fine_tune(*args):
        alive.append(sum(model() is not None for model in models))
        trained = training_module.fine_tune(*args)
        models.append(weakref.ref(trained))
        return trained

    monkeypatch.setattr(fine_tuner_module, "fine_tune", fine_tune)
    grid = dataclasses.replace(GRID, train_batch_size=(8,), num_train_epochs=(20.0,))
    best, report = search(fine_tuner, RUN, grid)
    assert alive == [0, 0]  # models in memory when another is trained
    assert best == RUN and report["best"]["learning_rate"] == 5e-3
    bad, good = (training["score"] for training in report["trainings"])
    assert good == 1.0 and bad < 0.8
    kept = {
        rate: Path(fine_tuner.folder(dataclasses.replace(RUN, learning_rate=rate)), "checkpoints").exists()
        for rate in grid.learning_rate
    }
    assert kept == {5e-3: True, 1e-9: False}
    # Whoever asks for the best model gets it from its checkpoint.
    trained = fine_tuner.train(best)
    log = Path(fine_tuner.folder(RUN), "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in log].count("eval") == 1
    assert trained.answers(fine_tuner.rows["eval"], 8) == [row.gold for row in fine_tuner.rows["eval"]]


def test_all_combinations_are_tried_once(fine_tuner, scored, capsys):
    trained = scored(lambda config: config.learning_rate * config.train_batch_size)
    best, _ = search(fine_tuner, RUN, GRID)
    points = [(config.train_batch_size, config.learning_rate, config.num_train_epochs) for config in trained]
    assert points == list(itertools.product(*GRID.grid.values()))
    assert {config.seed for config in trained} == {7} and best.train_batch_size == 16
    assert "search 4/4: train_batch_size 16, learning_rate 0.005, num_train_epochs 10: accuracy 0.08" in (
        capsys.readouterr().out
    )


def test_of_equal_scores_the_first_is_the_best(fine_tuner, scored):
    scored(lambda config: 0.5)
    best, report = search(fine_tuner, RUN, GRID)
    assert (best.train_batch_size, best.learning_rate) == (8, 1e-9) and report["best"] is report["trainings"][0]


def test_a_stopped_search_resumes(fine_tuner, scored):
    def stopped(config):
        if config.train_batch_size == 16:
            raise Preempted("stopped by SIGTERM at step 3")
        return config.learning_rate

    first = scored(stopped)
    with pytest.raises(Preempted, match="at step 3"):
        search(fine_tuner, RUN, GRID)
    assert [config.train_batch_size for config in first] == [8, 8, 16]
    for path in Path(fine_tuner.root).glob("*/checkpoints"):
        if not any(path.parent.glob("*-held_out_scores.json")):
            path.rmdir()  # of the one that was stopped
    second = scored(lambda config: config.learning_rate)
    best, report = search(fine_tuner, RUN, GRID)
    assert [config.train_batch_size for config in second] == [16, 16]
    assert len(report["trainings"]) == 4 and (best.train_batch_size, best.learning_rate) == (8, 5e-3)
    # A larger grid tries what is new.
    third = scored(lambda config: config.learning_rate)
    search(fine_tuner, RUN, dataclasses.replace(GRID, learning_rate=(1e-9, 5e-3, 1e-3)))
    assert [config.learning_rate for config in third] == [1e-3, 1e-3]


def test_a_diverged_training_has_no_score_and_the_search_continues(fine_tuner, scored, capsys):
    def diverging(config):
        if config.learning_rate == 5e-3:
            raise Diverged("the loss is nan at step 1")
        return 0.25 if config.train_batch_size == 16 else math.nan

    trained = scored(diverging)
    best, report = search(fine_tuner, RUN, GRID)
    assert len(trained) == 4 and "the loss is nan at step 1" in capsys.readouterr().out
    assert (best.train_batch_size, best.learning_rate, best.num_train_epochs) == (16, 1e-9, 10.0)
    assert [training["score"] for training in report["trainings"]] == [None, None, 0.25, None]
    with pytest.raises(StageError, match="none of the 2 trainings of the search ended with a score"):
        search(fine_tuner, RUN, dataclasses.replace(GRID, learning_rate=(5e-3,)))
    assert len(trained) == 4  # the same again would end the same


def test_a_search_on_several_workers_is_refused():
    several = dataclasses.replace(RUN, strategy="multi_worker")
    folders = dict.fromkeys(("rows", "output_dir", "logs_dir", "training_root"), "")
    with pytest.raises(InputError, match="a search runs in one process"):
        finetune(FinetuneJob(task="sst-2", training=several, search=dataclasses.replace(GRID, enabled=True), **folders))


def test_invalid_grids_and_restarts_are_named():
    with pytest.raises(ValueError, match=r"search\.learning_rate is \[\]"):
        SearchSettings(learning_rate=())
    with pytest.raises(ValueError, match=r"search\.train_batch_size is \[8, 8\]; it must be different values"):
        SearchSettings(train_batch_size=(8, 8))
    with pytest.raises(ValueError, match=r"training\.num_train_epochs is 0"):
        SearchSettings(num_train_epochs=(0,))
    with pytest.raises(ValueError, match=r"restarts\.ensemble is 3; it must be from 1 to restarts\.count, 2"):
        RestartSettings(count=2, ensemble=3)


def test_the_paper_s_grid():
    assert [len(values) for values in SearchSettings().grid.values()] == [2, 4, 3]
    assert SearchSettings().grid["learning_rate"] == [5e-5, 4e-5, 3e-5, 2e-5]


@pytest.fixture(scope="module")
def one_device():
    return open_devices(RUN.training_config(32))


def test_figures_of_restarts_and_the_best_model(fine_tuner, scored, one_device):
    scores = {7: 0.5, 8: 0.9, 9: math.nan, 10: 0.7, 11: 0.7}
    trained = scored(lambda config: scores[config.seed])
    chosen = train_restarts(fine_tuner, RUN, RestartSettings(count=5), one_device)
    assert [config.seed for config in trained] == [7, 8, 9, 10, 11]
    assert chosen.trained.model == 0.9 and chosen.config == dataclasses.replace(RUN, seed=8)
    assert chosen.report["chosen"] == [8] and chosen.report["ensemble"] is None
    del scores[9], scores[11]
    another = dataclasses.replace(fine_tuner, identity="another")
    again = train_restarts(another, RUN, RestartSettings(count=2), one_device)
    # 0.5 and 0.9: their mean is 0.7, the squares of what is off it 0.04 each, over n - 1 = 1: sqrt(0.08).
    assert again.report["mean"] == pytest.approx(0.7)
    assert again.report["deviation"] == pytest.approx(math.sqrt(0.08))
    assert again.report["scores"] == {7: {"accuracy": 0.5}, 8: {"accuracy": 0.9}}


def test_restarts_survive_a_seed_that_diverges(fine_tuner, scored, one_device, capsys):
    scores = {7: 0.5, 8: None, 9: 0.9}

    def diverging(config):
        if scores[config.seed] is None:
            raise Diverged("the loss is nan at step 1")
        return scores[config.seed]

    trained = scored(diverging)
    chosen = train_restarts(fine_tuner, RUN, RestartSettings(count=3, ensemble=1), one_device)
    assert [config.seed for config in trained] == [7, 8, 9] and chosen.config.seed == 9
    assert "bert-tfx: seed 8 is left out: the loss is nan at step 1" in capsys.readouterr().err
    assert math.isnan(chosen.report["scores"][8]["accuracy"]) and chosen.report["mean"] == pytest.approx(0.7)
    with pytest.raises(Diverged, match="the loss is nan"):
        train_restarts(fine_tuner, dataclasses.replace(RUN, seed=8), RestartSettings(), one_device)


def test_one_training_has_no_deviation(fine_tuner, scored, one_device):
    scored(lambda config: 0.5)
    report = train_restarts(fine_tuner, RUN, RestartSettings(), one_device).report
    assert (report["mean"], report["deviation"], report["chosen"]) == (0.5, None, [7])


def test_other_workers_train_all_and_choose_nothing(fine_tuner, scored, monkeypatch, one_device):
    trained = scored(lambda config: 0.5)
    monkeypatch.setattr(one_device, "worker", 1)
    assert train_restarts(fine_tuner, RUN, RestartSettings(count=3), one_device) is None
    assert len(trained) == 3


def test_an_ensemble_of_the_best_answers_by_the_mean_of_their_logits(fine_tuner, one_device):
    short = dataclasses.replace(RUN, num_train_epochs=2.0)
    held_out = fine_tuner.rows["eval"]
    chosen = train_restarts(fine_tuner, short, RestartSettings(count=2, ensemble=2), one_device)
    # From their checkpoints.
    members = {seed: fine_tuner.train(dataclasses.replace(short, seed=seed)) for seed in (7, 8)}
    scores = {seed: fine_tuner.scores(member, 8) for seed, member in members.items()}
    assert chosen.report["scores"] == scores
    best = sorted(scores, key=lambda seed: -scores[seed]["accuracy"])
    assert chosen.report["chosen"] == best and chosen.config.seed == best[0]
    logits = np.mean([members[seed].outputs(held_out, 8)[0] for seed in best], axis=0)
    assert_equal_but_for_rounding(chosen.trained.outputs(held_out, 8)[0], logits, DEPTH)
    right = [TASK.labels[label] == row.gold for label, row in zip(logits.argmax(-1), held_out, strict=True)]
    assert chosen.report["ensemble"] == {"accuracy": pytest.approx(np.mean(right))}
