"""The DAGs of both workflows: order, inputs and parameters of the stages, as compiled by TFX."""

import dataclasses
import json
import os

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from bert_keras.jobs import FinetuneJob, PretrainJob
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.tasks.table import TASKS
from components import code_version
from components.corpus_gen.inputs import InputFile, InputList
from components.corpus_gen.sorted_runs import SLOTS_A_SPLIT, hash_slot
from components.example_gate.schema import example_schema
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import with_settings
from pipeline.runs.spec import InitialFiles, RunInputs
from pipeline.stages import stage_of
from tests.support.pipeline.compiled_nodes import changed, compiled, parameter, producers, spec_of

END = ("Trainer", "Baseline", "Evaluator", "ServingValidator", "ModelPush")
OF_A_PHASE = ("PretrainExampleGen", "StatisticsGen", "ImportSchemaGen", "ExampleValidator", "ExampleGate")
PRETRAINING = {"CorpusGen", "VocabGen", *OF_A_PHASE, *END}
FINE_TUNING = {"TaskExampleGen", *END}
MODEL = RunInputs(initial_model=InitialFiles("/models/bert", "c0ffee", "LICENSE"))
TEXT = InputList("/run/inputs/1.json", "1")


@pytest.fixture(scope="module")
def nodes_of(tmp_path_factory):
    """`nodes_of(recipe, inputs, **request)`: the compiled nodes of a run directory."""
    run_dir = tmp_path_factory.mktemp("run")
    return lambda recipe, inputs=None, **request: compiled(spec_of(recipe, run_dir, inputs, **request))


@pytest.fixture(scope="module")
def tiny(nodes_of):
    return nodes_of(tiny_cpu())


@pytest.fixture(scope="module")
def sst2(nodes_of):
    return nodes_of(finetuning("sst-2"))


def text_of(node, key):
    return json.loads(parameter(node, key).string_value)


@pytest.mark.parametrize(("fixture", "stages"), [("tiny", PRETRAINING), ("sst2", FINE_TUNING)])
def test_the_stages_in_order(fixture, stages, request):
    nodes = request.getfixturevalue(fixture)
    assert set(nodes) == stages
    # They run in the order of the representation; stages that do not depend on each other may change places.
    done = set()
    for stage, node in nodes.items():
        assert done.issuperset(node.upstream_nodes)
        done.add(stage)


def test_training_waits_for_the_gate_of_the_examples(tiny):
    assert "ExampleGate" in tiny["Trainer"].upstream_nodes
    assert set(tiny["ExampleGate"].upstream_nodes) == {"ExampleValidator", "CorpusGen", "PretrainExampleGen"}


JUDGED = {
    ("Evaluator", "model"): "Trainer",
    ("Evaluator", "baseline_model"): "Baseline",
    ("ServingValidator", "model"): "Trainer",
    ("ServingValidator", "model_blessing"): "Evaluator",
    ("ModelPush", "model"): "Trainer",
    ("ModelPush", "model_run"): "Trainer",
    ("ModelPush", "model_blessing"): "Evaluator",
    ("ModelPush", "infra_blessing"): "ServingValidator",
    ("ModelPush", "evaluation"): "Evaluator",
}


def test_inputs_of_the_stages(tiny, sst2):
    own = {
        ("VocabGen", "documents"): "CorpusGen",
        ("PretrainExampleGen", "documents"): "CorpusGen",
        ("PretrainExampleGen", "vocabulary"): "VocabGen",
        ("StatisticsGen", "examples"): "PretrainExampleGen",
        ("ExampleValidator", "schema"): "ImportSchemaGen",
        ("ExampleGate", "anomalies"): "ExampleValidator",
        ("ExampleGate", "documents"): "CorpusGen",
        ("ExampleGate", "examples"): "PretrainExampleGen",
        ("Trainer", "examples"): "PretrainExampleGen",
        ("Evaluator", "examples"): "PretrainExampleGen",
    }
    rows = {("Trainer", "examples"): "TaskExampleGen", ("Evaluator", "examples"): "TaskExampleGen"}
    for nodes, expected in ((tiny, own | JUDGED), (sst2, rows | JUDGED)):
        assert {(stage, key): producers(nodes[stage], key) for stage, key in expected} == {
            place: {producer} for place, producer in expected.items()
        }


def test_the_resolver_reads_the_candidate_and_the_models_of_any_run(tiny):
    channels = {}
    for named in tiny["Baseline"].inputs.inputs.values():
        for channel in named.channels:
            of_this_run = any(query.type.name == "pipeline_run" for query in channel.context_queries)
            channels[channel.artifact_query.type.name, channel.producer_node_query.id] = of_this_run
    of_any_run = {("Model", ""), ("ModelBlessing", ""), ("InfraBlessing", "")}
    assert channels == {("Model", "Trainer"): True, **dict.fromkeys(of_any_run, False)}


def test_settings_reach_their_stages_and_only_those(nodes_of, tiny):
    assert changed(tiny, nodes_of(tiny_cpu())) == set()
    for setting, stages in {
        "corpus.segments=lines": {"CorpusGen"},
        "vocabulary.min_word_count=3": {"VocabGen"},
        "examples.seed=7": {"PretrainExampleGen"},
        "training.seed=7": {"Trainer"},
        "training.source_weights=web:3,law:1": {"Trainer"},
        "gate.min_mlm_accuracy=0.3": {"Evaluator"},
        "serving.max_latency_ms=5": {"ServingValidator"},
        "data.max_unknown_fraction=0.3": {"ExampleGate"},
        "model.vocab_size=9000": {"VocabGen", "ImportSchemaGen", "Trainer"},
        "examples.masking.max_predictions_per_seq=9": {"PretrainExampleGen", "ImportSchemaGen"},
    }.items():
        assert changed(tiny, nodes_of(with_settings(tiny_cpu(), [setting]))) == stages, setting


def test_inputs_reach_their_stages_and_only_those(nodes_of, tiny, sst2):
    tables = RunInputs(leaks="/leaks.npz", checked=[{"name": "dev.tsv", "sha256": "1", "unread": 0}])
    for inputs, stages in (
        (RunInputs(corpus=TEXT), {"CorpusGen"}),
        (RunInputs(vocabulary=InputFile(__file__, 1)), {"VocabGen"}),
        (RunInputs(pairs="/pairs.jsonl"), {"Evaluator"}),
        (tables, {"CorpusGen", "ModelPush"}),
    ):
        assert changed(tiny, nodes_of(tiny_cpu(), inputs)) == stages, inputs
    assert text_of(nodes_of(tiny_cpu(), tables)["CorpusGen"], "settings")["decontaminate"] == ["/leaks.npz"]
    assert changed(sst2, nodes_of(finetuning("sst-2"), RunInputs(rows={"train": ["a"]}, rows_fingerprint="1"))) == {
        "TaskExampleGen"
    }
    # Another initial checkpoint, or another reading of it, is another training.
    trained = nodes_of(finetuning("sst-2"), MODEL)
    other = RunInputs(initial_model=dataclasses.replace(MODEL.initial_model, sha256="c0ffeE"))
    for after in (sst2, nodes_of(finetuning("sst-2"), other), nodes_of(finetuning("sst-2"), MODEL, cased=True)):
        assert changed(trained, after) == {"Trainer"}


def test_a_reference_corpus_is_scored_and_not_trained_on(nodes_of):
    recipe = with_settings(tiny_cpu(), ["gate.max_forgetting=0.1"])
    nodes = nodes_of(recipe, MODEL, init="/models/bert", reference_corpus=("/text",))
    assert set(nodes) == {
        *PRETRAINING, "CorpusGen_reference", "PretrainExampleGen_reference", "InitialSource", "InitialModel"
    }  # fmt: skip
    assert producers(nodes["Evaluator"], "reference_examples") == {"PretrainExampleGen_reference"}
    assert producers(nodes["Evaluator"], "initial_model") == {"InitialModel"}
    assert producers(nodes["PretrainExampleGen_reference"], "vocabulary") == {"VocabGen"}
    # Examples as the held-out ones, of all documents.
    names = ("PretrainExampleGen", "PretrainExampleGen_reference")
    assert len({parameter(nodes[name], "settings").string_value for name in names}) == 1
    corpus = text_of(nodes["CorpusGen_reference"], "settings")
    assert hash_slot(b"\xff" * 16, corpus["eval_fraction"]) >= SLOTS_A_SPLIT
    assert not {"CorpusGen_reference", "PretrainExampleGen_reference"} & set(nodes["Trainer"].upstream_nodes)
    forgetting = text_of(nodes["Evaluator"], "forgetting")
    assert forgetting == {"of": "mlm", "limit": 0.1}
    assert parameter(nodes["InitialModel"], "judged").string_value == "true"


def test_a_teacher_is_an_input_of_the_training_alone(nodes_of, tiny):
    """And the gate reads what the training noted of it; the initial model is the same for any teacher."""
    recipe = with_settings(tiny_cpu(), ["gate.min_share_of_teacher=0.9", "distillation.weight=0.8"])
    teacher = InitialFiles("/runs/large/serving/7", "beef", "")
    begins = dataclasses.replace(MODEL, teacher=teacher)
    nodes = nodes_of(recipe, begins, init="/models/bert", teacher=teacher.source)
    job = PretrainJob.from_fields(text_of(nodes["Trainer"], "custom_config"))
    assert (job.teacher, job.teacher_fingerprint, job.distillation) == (teacher.source, "beef", recipe.distillation)
    assert text_of(nodes["Evaluator"], "teacher") == {"of": "mlm_accuracy", "limit": 0.9}
    assert producers(nodes["Evaluator"], "model_run") == {"Trainer"}
    assert text_of(nodes["ModelPush"], "custom_config")["teacher"] == {"name": "large/serving/7", "sha256": "beef"}
    alone = nodes_of(with_settings(tiny_cpu(), ["distillation.weight=0.8"]), MODEL, init="/models/bert")
    assert changed(alone, nodes) == {"Trainer", "Evaluator", "ModelPush"}
    assert text_of(tiny["Trainer"], "custom_config")["distillation"] == dataclasses.asdict(DistillationSettings())


def test_replayed_examples_are_trained_on_and_not_held_out(nodes_of):
    inputs = RunInputs(replay=TEXT, leaks="/leaks.npz")
    nodes = nodes_of(tiny_cpu(), inputs, replay=("/text",))
    assert set(nodes) == {*PRETRAINING, "CorpusGen_replay", "PretrainExampleGen_replay"}
    assert producers(nodes["Trainer"], "examples") == {"PretrainExampleGen", "PretrainExampleGen_replay"}
    assert producers(nodes["Evaluator"], "examples") == {"PretrainExampleGen"}
    flags = [parameter(nodes[f"PretrainExampleGen{kind}"], "replay").int_value for kind in ("", "_replay")]
    assert flags == [0, 1]
    corpus, replayed = (text_of(nodes[f"CorpusGen{kind}"], "settings") for kind in ("", "_replay"))
    # By the same hash: a document of both is held out of both.
    assert replayed["eval_fraction"] == corpus["eval_fraction"]
    assert replayed["decontaminate"] == ["/leaks.npz"]


def test_a_second_phase_has_replayed_examples_of_its_own(nodes_of):
    recipe = with_settings(tiny_cpu(), ["second_phase.num_train_steps=100", "second_phase.max_seq_length=128"])
    nodes = nodes_of(recipe, RunInputs(replay=TEXT), replay=("/text",))
    made = [f"PretrainExampleGen{kind}" for kind in ("", "_second_phase", "_replay", "_replay_second_phase")]
    assert producers(nodes["Trainer"], "examples") == {*made}
    assert [text_of(nodes[node], "settings")["max_seq_length"] for node in made] == [64, 128, 64, 128]
    assert [parameter(nodes[node], "replay").int_value for node in made] == [0, 0, 1, 1]
    assert {stage_of(node) for node in made} == {"PretrainExampleGen"}


def test_documents_of_an_earlier_run_reach_the_corpus(nodes_of):
    nodes = nodes_of(tiny_cpu(), RunInputs(earlier="/documents"), latest="7")
    assert set(nodes) == {*PRETRAINING, "EarlierDocuments"}
    assert producers(nodes["CorpusGen"], "earlier") == {"EarlierDocuments"}


def test_the_trainer_receives_the_recipe_and_the_code_version(nodes_of, tiny):
    assert parameter(tiny["Trainer"], "run_fn").string_value == "components.trainer.pretrain.run_fn"
    assert "module_file" not in tiny["Trainer"].parameters.parameters
    job, recipe = PretrainJob.from_fields(text_of(tiny["Trainer"], "custom_config")), tiny_cpu()
    for field in ("model", "training", "second_phase", "pretraining", "export"):
        assert getattr(job, field) == getattr(recipe, field)
    # TFX deletes a failed stage's outputs: checkpoints are elsewhere.
    assert os.path.basename(job.training_root) == "training" and len(job.code) == 64

    recipe = with_settings(
        finetuning("cola"),
        ["task.max_seq_length=64", "training.num_train_epochs=4", "restarts.count=2", "search.enabled=true"],
    )
    job = FinetuneJob.from_fields(text_of(nodes_of(recipe, MODEL, cased=True)["Trainer"], "custom_config"))
    assert (job.task, job.init, job.init_fingerprint, job.cased) == ("cola", "/models/bert", "c0ffee", True)
    assert job.task_settings == recipe.task and job.task_settings.max_seq_length == 64
    assert job.training == recipe.training and job.export == recipe.export
    assert job.restarts == recipe.restarts and job.search == recipe.search and job.search.enabled
    assert job.max_unknown_fraction == recipe.data.max_unknown_fraction


@pytest.mark.parametrize(
    ("file", "stages"),
    [
        ("components/corpus_gen/filters/cleaning.py", {"CorpusGen", "ExampleGate"}),
        ("components/vocab_gen/learn.py", {"VocabGen"}),
        ("components/pretrain_example_gen/sentence_pairs.py", {"PretrainExampleGen"}),
        ("components/example_gate/limits.py", {"ExampleGate"}),
        ("bert_keras/training/optimizer.py", {"Trainer"}),
        ("components/evaluator/metrics.py", {"Evaluator"}),
        ("bert_keras/objectives/table.py", {"Evaluator"}),
        ("components/evaluator/slices.py", {"Evaluator"}),
        ("components/serving_validator/component.py", {"ServingValidator"}),
        ("serving/models/servable.py", {"ServingValidator"}),
    ],
)
def test_changed_code_misses_the_cache(nodes_of, tiny, monkeypatch, file, stages):
    source, code = (code_version.ROOT / file).read_bytes(), code_version._code
    monkeypatch.setattr(
        code_version,
        "_code",
        lambda text, *more: ("changed", code(text)[1]) if text == source else code(text, *more),
    )
    assert changed(tiny, nodes_of(tiny_cpu())) == stages


def test_the_schema_is_the_curated_one(tiny):
    recipe, path = tiny_cpu(), parameter(tiny["ImportSchemaGen"], "schema_file").string_value
    assert os.path.basename(os.path.dirname(path)) == "schema"
    with open(path) as file:
        schema = text_format.Parse(file.read(), schema_pb2.Schema())
    assert schema == example_schema(recipe.examples.layout, recipe.model.vocab_size)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_compiles(nodes_of, name):
    recipe = RECIPES[name]()
    second = {f"{stage}_second_phase" for stage in OF_A_PHASE} if recipe.second_phase.num_train_steps else set()
    nodes = nodes_of(recipe)
    assert set(nodes) == PRETRAINING | second
    if second:
        assert producers(nodes["Trainer"], "examples") == {"PretrainExampleGen", "PretrainExampleGen_second_phase"}
        assert {"ExampleGate", "ExampleGate_second_phase"} <= set(nodes["Trainer"].upstream_nodes)
        assert producers(nodes["Evaluator"], "examples") == {"PretrainExampleGen_second_phase"}
        lengths = [text_of(nodes[f"PretrainExampleGen{phase}"], "settings") for phase in ("", "_second_phase")]
        assert lengths[0]["max_seq_length"] < lengths[1]["max_seq_length"] == recipe.second_phase.max_seq_length


@pytest.mark.parametrize("task", TASKS)
def test_every_task_compiles(nodes_of, task):
    recipe = finetuning(task)
    assert recipe.row == TASKS[task] and set(nodes_of(recipe)) == FINE_TUNING
