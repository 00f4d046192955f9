"""The search in the pipeline: its place in the DAG, its parameters, and a run by TFX's own executor."""

import dataclasses
import hashlib
import json
import os

import pytest
from tfx.components.trainer import fn_args_utils
from tfx.components.tuner.executor import Executor
from tfx.dsl.compiler import compiler
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import proto_utils
from typer.testing import CliRunner

from bert_keras.errors import InputError
from bert_keras.finetuning.finetune import finetune
from bert_keras.jobs import FinetuneJob
from bert_keras.models.config import BertConfig
from bert_keras.tasks.rows import TaskRow, write_rows
from bert_keras.tasks.settings import FineTuningConfig, SearchSettings, TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS
from components.trainer.finetune import run_fn
from pipeline.cli import app
from pipeline.dags.finetune import create_pipeline
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.settings import settings_of, with_settings
from pipeline.runners import local
from pipeline.summaries.search import write_search

WITHOUT = finetuning("sst-2")
WITH = with_settings(WITHOUT, ["search.enabled=true", "search.learning_rate=1e-4, 2e-5", "restarts.count=3"])


@pytest.fixture
def compiled(tmp_path):
    """`compiled(recipe)` is {stage: its node in TFX's intermediate representation}."""
    rows = tmp_path / "train.tsv"
    rows.write_text("sentence\tlabel\ngood\t1\nbad\t0\n")

    def compiled(recipe):
        pipeline = create_pipeline(recipe, {"train": [str(rows)]}, "", None, str(tmp_path / "run"), "named", [])
        return {
            node.pipeline_node.node_info.id: node.pipeline_node for node in compiler.Compiler().compile(pipeline).nodes
        }

    return compiled


def parameters(node):
    return {name: value.field_value.string_value for name, value in node.parameters.parameters.items()}


def told(node):
    return json.loads(parameters(node)["custom_config"])


def test_the_search_comes_between_rows_and_training(compiled):
    nodes = compiled(WITH)
    assert set(nodes) - set(compiled(WITHOUT)) == {"Tuner"}
    assert "Tuner" in nodes["Trainer"].upstream_nodes and "TaskExampleGen" in nodes["Tuner"].upstream_nodes
    (found,) = nodes["Trainer"].inputs.inputs["hyperparameters"].channels
    assert (found.producer_node_query.id, found.output_key) == ("Tuner", "best_hyperparameters")
    assert parameters(nodes["Tuner"])["tuner_fn"] == "components.trainer.tuner.tuner_fn"
    assert "module_file" not in nodes["Tuner"].parameters.parameters


def test_without_a_search_the_training_uses_its_own_settings(compiled):
    nodes = compiled(WITHOUT)
    assert "hyperparameters" not in nodes["Trainer"].inputs.inputs
    assert told(nodes["Trainer"])["training"] == dataclasses.asdict(WITHOUT.training)


def test_each_stage_receives_only_its_own_settings(compiled):
    """Another number of restarts is no other search, and the cache serves it."""
    nodes = compiled(WITH)
    assert told(nodes["Tuner"])["search"]["learning_rate"] == [1e-4, 2e-5]
    assert not told(nodes["Trainer"])["search"]["enabled"]  # its settings are the best of the search
    assert told(nodes["Trainer"])["restarts"] == {"count": 3, "ensemble": 1}
    more = compiled(with_settings(WITH, ["restarts.count=5", "restarts.ensemble=2"]))
    assert parameters(more["Tuner"]) == parameters(nodes["Tuner"])
    assert parameters(more["Trainer"]) != parameters(nodes["Trainer"])


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
    monkeypatch.setattr(local, "run", lambda request: runs.append(request.resolved) or {"blessed": True})
    command = ["finetune", "sst-2", "--init", "model"]
    for options in ([], ["--search"], ["--restarts", "4", "--set", "restarts.ensemble=2"]):
        assert CliRunner().invoke(app, [*command, *options]).exit_code == 0
    plain, search, restarts = runs
    assert plain == WITHOUT
    assert search == with_settings(WITHOUT, ["search.enabled=true"])
    assert (restarts.restarts.count, restarts.restarts.ensemble) == (4, 2)


# What TFX itself does with the entry points, on 32 rows and a model of one layer.
TASK = task_of("sst-2")
WORDS = ["good", "bad", "the", "film"]
MODEL = BertConfig(9, 16, 1, 2, 32, 0.0, 0.0, max_position_embeddings=16, initializer_range=0.2)
TRAINING = FineTuningConfig(train_batch_size=8, num_train_epochs=20.0, eval_batch_size=8)
SEARCH = SearchSettings(True, train_batch_size=(8,), learning_rate=(1e-9, 5e-3), num_train_epochs=(20.0,))


@pytest.fixture
def examples(tmp_path):
    """Rows as `TaskExampleGen` leaves them, and the vocabulary of a model with drawn weights beside them."""
    folder = tmp_path / "rows"
    rows = [TaskRow(str(i), {"text": f"the film {WORDS[1 - i % 2]}"}, str(i % 2)) for i in range(32)]
    write_rows(str(folder), TASK, {"train": rows, "eval": rows})
    (tmp_path / "vocabulary").mkdir()
    vocabulary = "".join(f"{token}\n" for token in [*SPECIAL_TOKENS, *WORDS])
    sha256 = hashlib.sha256(vocabulary.encode()).hexdigest()
    spec = {"algorithm": "wordpiece", "lower_case": True, "vocabulary_sha256": sha256}
    (tmp_path / "vocabulary" / "vocab.txt").write_text(vocabulary)
    (tmp_path / "vocabulary" / "vocab_spec.json").write_text(json.dumps(spec))
    artifact = standard_artifacts.Examples()
    artifact.uri = str(folder)
    artifact.split_names = artifact_utils.encode_split_names(["train", "eval"])
    return artifact


def test_tfx_runs_the_search_and_the_training_uses_its_best_settings(examples, tmp_path, capsys):
    job = FinetuneJob(
        rows="",
        task="sst-2",
        task_settings=TaskSettings(max_seq_length=16),
        model=MODEL,
        vocabulary=str(tmp_path / "vocabulary"),
        training=TRAINING,
        output_dir="",
        logs_dir="",
        training_root=str(tmp_path / "training"),
        code="of this test",
    )
    searching = dataclasses.replace(job, search=SEARCH)
    properties = {
        "tuner_fn": "components.trainer.tuner.tuner_fn",
        "train_args": proto_utils.proto_to_json(trainer_pb2.TrainArgs(splits=["train"])),
        "eval_args": proto_utils.proto_to_json(trainer_pb2.EvalArgs(splits=["eval"])),
        "custom_config": searching.to_json(),
    }
    outputs = {}
    for key, kind in (
        ("best_hyperparameters", standard_artifacts.HyperParameters),
        ("tuner_results", standard_artifacts.TunerResults),
    ):
        outputs[key] = [kind()]
        outputs[key][0].uri = str(tmp_path / key)
        os.mkdir(tmp_path / key)
    Executor(Executor.Context(tmp_dir=str(tmp_path), unique_id="1")).Do({"examples": [examples]}, outputs, properties)
    assert "Search space" not in capsys.readouterr().out

    found = write_search(str(tmp_path / "tuner_results"), SEARCH.grid, "accuracy", str(tmp_path / "search"))
    by_rate = {training["learning_rate"]: training["score"] for training in found["trainings"]}
    assert by_rate[5e-3] == 1.0 > by_rate[1e-9] and found["best"]["learning_rate"] == 5e-3

    before = {path: path.read_bytes() for path in (tmp_path / "training").glob("*/log.jsonl")}
    assert len(before) == 2
    best = json.loads((tmp_path / "best_hyperparameters" / "best_hyperparameters.txt").read_text())
    run_fn(
        fn_args_utils.FnArgs(
            train_files=[f"{examples.uri}/Split-train/*"],
            serving_model_dir=str(tmp_path / "model"),
            model_run_dir=str(tmp_path / "run"),
            hyperparameters=best,
            custom_config=dataclasses.asdict(job),
        )
    )
    # The best training was made by the search, and is not made again.
    assert set((tmp_path / "training").glob("*/log.jsonl")) == set(before)
    assert json.loads((tmp_path / "run" / "scores.json").read_text()) == {"eval": {"accuracy": 1.0}}
    report = json.loads((tmp_path / "run" / "restarts.json").read_text())
    assert report["chosen"] == [TRAINING.seed] and report["scores"] == {str(TRAINING.seed): {"accuracy": 1.0}}

    # The library finds the same settings without TFX, and makes no training again.
    folders = {name: str(tmp_path / "alone" / name) for name in ("output_dir", "logs_dir")}
    finetune(dataclasses.replace(searching, rows=examples.uri, **folders))
    assert set((tmp_path / "training").glob("*/log.jsonl")) == set(before)
    assert json.loads((tmp_path / "alone" / "logs_dir" / "restarts.json").read_text()) == report
