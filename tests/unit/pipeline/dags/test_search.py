"""The search in the pipeline: its settings, and a run by the Trainer's entry point."""

import dataclasses
import hashlib
import json

import pytest
from tfx.components.trainer import fn_args_utils
from typer.testing import CliRunner

from bert_keras.errors import InputError
from bert_keras.jobs import FinetuneJob
from bert_keras.models.config import BertConfig
from bert_keras.tasks.rows import TaskRow, write_rows
from bert_keras.tasks.settings import FineTuningConfig, SearchSettings, TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS
from components.trainer.finetune import run_fn
from pipeline.cli import app
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.settings import settings_of, with_settings
from pipeline.runners import local
from pipeline.runs.resolve import without_inputs

WITHOUT = finetuning("sst-2")
WITH = with_settings(WITHOUT, ["search.enabled=true", "search.learning_rate=1e-4, 2e-5", "restarts.count=3"])


def test_grids_are_comma_separated():
    assert settings_of(WITH)["search.learning_rate"] == (1e-4, 2e-5)
    again = with_settings(WITHOUT, ["search.train_batch_size=8"])
    assert again.search.train_batch_size == (8,)
    with pytest.raises(
        InputError, match=r"search\.train_batch_size must be a whole number, or several with commas between; .*integer"
    ):
        with_settings(WITHOUT, ["search.train_batch_size=16,many"])
    listed = CliRunner().invoke(app, ["recipes", "sst-2"]).stdout.splitlines()
    assert "search.train_batch_size=16,32" in listed and "restarts.count=1" in listed
    shown = [setting for setting in listed if setting.startswith("search.")]
    assert with_settings(WITH, [*shown, "restarts.count=1"]) == WITHOUT


def test_the_options_of_the_command_are_settings(monkeypatch):
    runs = []
    monkeypatch.setattr(local, "run", lambda request: runs.append(without_inputs(request).recipe) or {"blessed": True})
    command = ["finetune", "sst-2", "--init", "model"]
    for options in ([], ["--search"], ["--restarts", "4", "--set", "restarts.ensemble=2"]):
        assert CliRunner().invoke(app, [*command, *options]).exit_code == 0
    plain, search, restarts = runs
    assert plain == WITHOUT
    assert search == with_settings(WITHOUT, ["search.enabled=true"])
    assert (restarts.restarts.count, restarts.restarts.ensemble) == (4, 2)


TASK = task_of("sst-2")
WORDS = ["good", "bad", "the", "film"]
MODEL = BertConfig(9, 16, 1, 2, 32, 0.0, 0.0, max_position_embeddings=16, initializer_range=0.2)
TRAINING = FineTuningConfig(train_batch_size=8, num_train_epochs=6.0, eval_batch_size=8)
SEARCH = SearchSettings(True, train_batch_size=(8,), learning_rate=(1e-9, 5e-3), num_train_epochs=(6.0,))


def test_the_trainer_searches_and_exports_the_best_without_training_it_again(tmp_path, monkeypatch):
    rows = [TaskRow(str(i), {"text": f"the film {WORDS[1 - i % 2]}"}, str(i % 2)) for i in range(32)]
    write_rows(str(tmp_path / "rows"), TASK, {"train": rows, "eval": rows})
    (tmp_path / "vocabulary").mkdir()
    vocabulary = "".join(f"{token}\n" for token in [*SPECIAL_TOKENS, *WORDS])
    sha256 = hashlib.sha256(vocabulary.encode()).hexdigest()
    spec = {"algorithm": "wordpiece", "lower_case": True, "vocabulary_sha256": sha256}
    (tmp_path / "vocabulary" / "vocab.txt").write_text(vocabulary)
    (tmp_path / "vocabulary" / "vocab_spec.json").write_text(json.dumps(spec))
    job = FinetuneJob(
        rows="",
        task="sst-2",
        task_settings=TaskSettings(max_seq_length=16),
        model=MODEL,
        vocabulary=str(tmp_path / "vocabulary"),
        training=TRAINING,
        search=SEARCH,
        output_dir="",
        logs_dir="",
        training_root=str(tmp_path / "training"),
        code="of this test",
    )
    monkeypatch.setattr("bert_keras.finetuning.finetune.export_task_model", lambda *_: None)
    run_fn(
        fn_args_utils.FnArgs(
            train_files=[f"{tmp_path / 'rows'}/Split-train/*"],
            serving_model_dir=str(tmp_path / "model"),
            model_run_dir=str(tmp_path / "run"),
            custom_config=dataclasses.asdict(job),
        )
    )
    search = json.loads((tmp_path / "run" / "search.json").read_text())
    by_rate = {training["learning_rate"]: training["score"] for training in search["trainings"]}
    assert by_rate[5e-3] == 1.0 > by_rate[1e-9] and search["best"]["learning_rate"] == 5e-3
    assert len([*(tmp_path / "training").glob("*/log.jsonl")]) == 2
    assert json.loads((tmp_path / "run" / "scores.json").read_text()) == {"eval": {"accuracy": 1.0}}
    report = json.loads((tmp_path / "run" / "restarts.json").read_text())
    assert report["chosen"] == [TRAINING.seed] and report["scores"] == {str(TRAINING.seed): {"accuracy": 1.0}}
