"""The two workflows, and the names of their stages."""

import re

import pytest
from apache_beam.io.filesystems import FileSystems

from bert_keras.errors import InputError
from pipeline import stages
from pipeline.runners.run_steps import graph_of
from pipeline.runs.request import RunRequest
from pipeline.workflows.pretrain import PretrainWorkflow
from pipeline.workflows.workflow import WORKFLOWS, workflow_of
from tests.support.examples.object_stores import in_memory

SECOND_PHASE = ("second_phase.num_train_steps=10", "second_phase.max_seq_length=128")
DECLARED = {value for name, value in vars(stages).items() if name.isupper() and isinstance(value, str)}


@pytest.mark.parametrize(
    ("recipe", "name"), [("tiny_cpu", "pretrain"), ("bert_base", "pretrain"), ("sst-2", "finetune")]
)
def test_a_recipe_has_its_workflow(recipe, name):
    request = RunRequest(recipe, "/runs")
    assert workflow_of(request) is WORKFLOWS[name]
    assert (workflow_of(request).name, request.pipeline_name) == (name, f"bert-{name}")


@pytest.mark.parametrize(
    ("recipe", "settings", "read"),
    [
        ("tiny_cpu", (), "PretrainExampleGen"),
        ("tiny_cpu", SECOND_PHASE, "PretrainExampleGen_second_phase"),
        ("sst-2", ("search.enabled=true",), "TaskExampleGen"),
    ],
)
def test_the_nodes_are_the_declared_stages(recipe, settings, read):
    """What is not declared is TFX's own: nothing here reads its artifacts. The Evaluator reads the judged phase's."""
    request = RunRequest(recipe, "/runs", settings=settings)
    graph = graph_of(request)
    assert {stages.stage_of(node) for node in graph} - DECLARED <= {"StatisticsGen", "ExampleValidator"}
    phase = getattr(request.resolved, "judged_phase", stages.FIRST_PHASE)
    generator = stages.PRETRAIN_EXAMPLE_GEN if recipe == "tiny_cpu" else stages.TASK_EXAMPLE_GEN
    assert stages.of_phase(generator, phase) == read
    assert [node for node in graph[stages.EVALUATOR] if "ExampleGen" in node] == [read]


def test_workflows_share_only_the_initial_model_and_tuned_settings_are_settings():
    from pipeline.recipes.settings import settings_of

    first, second = (set(workflow.inputs) for workflow in WORKFLOWS.values())
    assert first & second == {"init", "cased"}
    for recipe in ("tiny_cpu", "sst-2"):
        request = RunRequest(recipe, "/runs")
        assert set(workflow_of(request).tuned.values()) <= set(settings_of(request.resolved))
        assert set(workflow_of(request).parameters(request)) <= set(workflow_of(request).inputs)


@pytest.mark.parametrize(
    ("given", "settings", "line"),
    [
        (
            {"corpus": ("web={0}",)},
            ("training.source_weights=web:1,law:2",),
            "training.source_weights: law is no source of the examples; the sources are web",
        ),
        (
            {"corpus": ("web={0}", "law={1}")},
            ("training.source_weights=web:1",),
            "training.source_weights: law has no number; the sources are law, web",
        ),
        ({"corpus": ("{0}",), "replay": ("old={1}",)}, (), "old=: only --corpus has sources with names"),
    ],
)
def test_names_of_sources_are_checked_before_any_stage(tmp_path, given, settings, line):
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in paths:
        path.write_text("A sentence.\n")
    given = {option: tuple(pattern.format(*paths) for pattern in patterns) for option, patterns in given.items()}
    with pytest.raises(InputError, match=re.escape(line)):
        PretrainWorkflow().find_inputs(RunRequest("tiny_cpu", str(tmp_path / "run"), settings=settings, **given))


def test_the_rows_of_a_task_may_lie_in_a_bucket(tmp_path, monkeypatch):
    """Beam's S3 asks for the pipeline's options, which a command has not set before."""
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    in_memory(monkeypatch, "s3").write("s3://bucket/SST-2/train.tsv", b"sentence\tlabel\na\t1\n")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    request = RunRequest("sst-2", "/runs", init=str(tmp_path), data="s3://bucket/SST-2")
    assert workflow_of(request).find_inputs(request) == {"train": ["s3://bucket/SST-2/train.tsv"]}
