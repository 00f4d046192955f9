"""The DAG of fine-tuning: inputs of each stage, parameters of the Trainer, compilation by TFX."""

import json
import re

import pytest
from tfx.dsl.compiler import compiler

from bert_keras.errors import InputError
from bert_keras.jobs import FinetuneJob
from bert_keras.tasks.table import TASKS
from pipeline.dags.finetune import create_pipeline
from pipeline.recipes.finetuning import FineTuneRecipe, finetuning
from pipeline.recipes.settings import settings_of, with_settings

STAGES = ["TaskExampleGen", "Trainer", "Baseline", "Evaluator", "ServingValidator", "ModelPush"]


@pytest.fixture
def compiled(tmp_path):
    """`compiled(recipe)` is {stage: its node in TFX's intermediate representation}, in order."""
    rows = tmp_path / "train.tsv"
    rows.write_text("sentence\tlabel\ngood\t1\nbad\t0\n")

    def compiled(recipe, init="", cased=None):
        pipeline = create_pipeline(recipe, {"train": [str(rows)]}, init, cased, str(tmp_path / "run"), "named", [])
        ir = compiler.Compiler().compile(pipeline)
        assert ir.pipeline_info.id == "named"
        return {node.pipeline_node.node_info.id: node.pipeline_node for node in ir.nodes}

    return compiled


def producers(node, key):
    """Stages whose output a node reads under `key`."""
    return {channel.producer_node_query.id for channel in node.inputs.inputs[key].channels} - {""}


def custom_config(nodes):
    return json.loads(nodes["Trainer"].parameters.parameters["custom_config"].field_value.string_value)


def test_the_stages_in_order(compiled):
    nodes = compiled(finetuning("sst-2"))
    assert sorted(nodes) == sorted(STAGES)
    for earlier, later in (("TaskExampleGen", "Trainer"), ("Trainer", "Baseline"), ("Baseline", "Evaluator")):
        assert earlier in nodes[later].upstream_nodes
    assert "Evaluator" in nodes["ModelPush"].upstream_nodes


@pytest.mark.parametrize(
    ("stage", "key", "producer"),
    [
        ("Trainer", "examples", "TaskExampleGen"),
        ("Evaluator", "examples", "TaskExampleGen"),
        ("Evaluator", "model", "Trainer"),
        ("Evaluator", "baseline_model", "Baseline"),
        ("ModelPush", "model", "Trainer"),
        ("ModelPush", "model_blessing", "Evaluator"),
        ("ModelPush", "infra_blessing", "ServingValidator"),
    ],
)
def test_inputs_of_a_stage(compiled, stage, key, producer):
    assert producers(compiled(finetuning("sst-2"))[stage], key) == {producer}


@pytest.fixture
def model(tmp_path):
    """The files by which a pushed model is known."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "bert_config.json").write_text("{}")
    (tmp_path / "model" / "model.weights.h5").write_bytes(b"weights")
    return tmp_path / "model"


def test_the_trainer_receives_the_whole_recipe(compiled, model):
    recipe = with_settings(
        finetuning("cola"), ["task.max_seq_length=64", "training.num_train_epochs=4", "restarts.count=2"]
    )
    job = FinetuneJob.from_fields(custom_config(compiled(recipe, str(model), cased=True)))
    assert (job.task, job.init, job.cased) == ("cola", str(model), True)
    assert job.task_settings == recipe.task and job.task_settings.max_seq_length == 64
    assert job.training == recipe.training and job.restarts == recipe.restarts and job.export == recipe.export
    assert job.max_unknown_fraction == recipe.data.max_unknown_fraction


def test_another_initial_checkpoint_is_another_execution(compiled, model):
    recipe = finetuning("sst-2")
    before = custom_config(compiled(recipe, str(model)))
    assert custom_config(compiled(recipe, str(model))) == before
    assert custom_config(compiled(recipe, str(model), cased=True)) != before
    (model / "model.weights.h5").write_bytes(b"weightS")
    assert custom_config(compiled(recipe, str(model))) != before


def test_a_folder_without_a_model_is_refused(compiled, tmp_path):
    with pytest.raises(InputError, match="unknown model format"):
        compiled(finetuning("sst-2"), str(tmp_path))
    with pytest.raises(InputError, match="no such folder"):
        compiled(finetuning("sst-2"), str(tmp_path / "nothing"))


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_recipe_that_compiles(compiled, task):
    recipe = finetuning(task)
    assert isinstance(recipe, FineTuneRecipe) and recipe.row == TASKS[task]
    assert set(compiled(recipe)) == set(STAGES)
    sections = {"data", "task", "training", "gate", "search", "restarts", "serving", "slices", "export"}
    assert {key.partition(".")[0] for key in settings_of(recipe)} == sections


def test_the_paper_s_settings():
    assert (finetuning("mnli").training.train_batch_size, finetuning("mnli").training.num_train_epochs) == (32, 3.0)
    assert finetuning("squad1.1").task.max_seq_length == 384
    assert finetuning("squad2.0").training.num_train_epochs == 2.0
    assert (finetuning("swag").training.train_batch_size, finetuning("swag").training.learning_rate) == (16, 2e-5)


def test_a_slice_s_threshold_is_one_setting():
    bounds = "gate.min_slice_scores=label=1:0.7,length=over 256:0.5,source=a=b:c:0"
    gate = with_settings(finetuning("sst-2"), [bounds]).gate
    assert gate.slice_bounds == [("label", "1", 0.7), ("length", "over 256", 0.5), ("source", "a=b:c", 0.0)]
    assert with_settings(finetuning("sst-2"), [bounds, "gate.min_slice_scores="]).gate.slice_bounds == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["gate.min_slice_scores=genre=fiction:0.5"], "takes label, length, source as in 'length=over 256:0.5'"),
        (["gate.min_slice_scores=label=1"], "has 'label=1'; it takes"),
        (["gate.min_slice_scores=label=1:nan"], "has 'label=1:nan'; it takes"),
        (["gate.min_slice_scores=label=:0.5"], "has 'label=:0.5'; it takes"),
        (
            ["gate.min_slice_scores=length=over 99:0.5"],
            "has length 'over 99', which slices does not have; lengths are up",
        ),
        (["gate.min_slice_scores=length=over 99:0.5", "slices.lengths="], "lengths are none"),
        (["slices.lengths=64,32"], "slices.lengths is 64,32; each must be above the one before"),
    ],
)
def test_a_threshold_of_an_unknown_slice_is_refused_before_the_run(settings, said):
    with pytest.raises(InputError, match=re.escape(said)):
        with_settings(finetuning("sst-2"), settings)


def test_a_regression_has_no_slices_by_label():
    with pytest.raises(InputError, match="has label '1', which slices does not have"):
        with_settings(finetuning("sts-b"), ["gate.min_slice_scores=label=1:0.5"])


def test_an_unknown_task_is_refused():
    with pytest.raises(InputError, match="sst-3: no such task; there are mnli, qqp"):
        finetuning("sst-3")
