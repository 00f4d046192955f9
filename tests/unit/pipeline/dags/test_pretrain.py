"""The DAG of pre-training: order and inputs of the stages, compilation by TFX."""

import itertools
import json
import os

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.compiler import compiler

from bert_keras.jobs import PretrainJob
from components import code_version
from components.corpus_gen.inputs import InputFile, find_inputs
from components.corpus_gen.sorted_runs import SLOTS_A_SPLIT, hash_slot
from components.example_gate.schema import example_schema
from pipeline.dags.pretrain import create_pipeline, earlier_documents, initial_source
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import with_settings
from pipeline.stages import stage_of

STAGES = [
    "CorpusGen",
    "VocabGen",
    "PretrainExampleGen",
    "StatisticsGen",
    "ImportSchemaGen",
    "ExampleValidator",
    "ExampleGate",
    "Trainer",
    "Baseline",
    "Evaluator",
    "ServingValidator",
    "ModelPush",
]


@pytest.fixture
def compiled(tmp_path):
    """`compiled(recipe)` is {stage: its node in TFX's intermediate representation}, in order."""
    (tmp_path / "text.txt").write_text("A sentence.")

    def compiled(recipe, vocabulary=None, **initial):
        run_dir = str(tmp_path / "run")
        inputs = find_inputs([f"{tmp_path}/text.txt"], recipe.corpus)
        pipeline = create_pipeline(recipe, inputs, run_dir, "named", ["--runner=FnApiRunner"], vocabulary, **initial)
        ir = compiler.Compiler().compile(pipeline)
        assert ir.pipeline_info.id == "named"
        return {node.pipeline_node.node_info.id: node.pipeline_node for node in ir.nodes}

    return compiled


def producers(node, key):
    """Stages whose output a node reads under `key`."""
    inputs = node.inputs.inputs
    keys = [key, *inputs[key].mixed_inputs.input_keys]  # a union of channels is put under keys of its own
    return {channel.producer_node_query.id for key in keys for channel in inputs[key].channels} - {""}


def parameter(node, key):
    return node.parameters.parameters[key].field_value


def test_the_stages_in_order(compiled):
    nodes = compiled(tiny_cpu())
    assert sorted(nodes) == sorted(STAGES)
    # They run in the order of the representation; stages that do not depend on each other may change places.
    done = set()
    for stage, node in nodes.items():
        assert done.issuperset(node.upstream_nodes)
        done.add(stage)
    for earlier, later in itertools.pairwise(
        [
            "CorpusGen",
            "VocabGen",
            "PretrainExampleGen",
            "StatisticsGen",
            "ExampleValidator",
            "ExampleGate",
            "Trainer",
            "Baseline",
            "Evaluator",
            "ServingValidator",
            "ModelPush",
        ]
    ):
        assert earlier in nodes[later].upstream_nodes


def test_training_waits_for_the_gate_of_the_examples(compiled):
    nodes = compiled(tiny_cpu())
    assert "ExampleGate" in nodes["Trainer"].upstream_nodes
    assert "Trainer" in nodes["ExampleGate"].downstream_nodes
    assert set(nodes["ExampleGate"].upstream_nodes) == {"ExampleValidator", "CorpusGen", "PretrainExampleGen"}


@pytest.mark.parametrize(
    ("stage", "key", "producer"),
    [
        ("VocabGen", "documents", "CorpusGen"),
        ("PretrainExampleGen", "documents", "CorpusGen"),
        ("PretrainExampleGen", "vocabulary", "VocabGen"),
        ("StatisticsGen", "examples", "PretrainExampleGen"),
        ("ExampleValidator", "schema", "ImportSchemaGen"),
        ("ExampleGate", "anomalies", "ExampleValidator"),
        ("ExampleGate", "documents", "CorpusGen"),
        ("ExampleGate", "examples", "PretrainExampleGen"),
        ("Trainer", "examples", "PretrainExampleGen"),
        ("Evaluator", "model", "Trainer"),
        ("Evaluator", "baseline_model", "Baseline"),
        ("Evaluator", "examples", "PretrainExampleGen"),
        ("ModelPush", "model", "Trainer"),
        ("ServingValidator", "model", "Trainer"),
        ("ServingValidator", "model_blessing", "Evaluator"),
        ("ModelPush", "model_run", "Trainer"),
        ("ModelPush", "model_blessing", "Evaluator"),
        ("ModelPush", "infra_blessing", "ServingValidator"),
        ("ModelPush", "evaluation", "Evaluator"),
    ],
)
def test_inputs_of_a_stage(compiled, stage, key, producer):
    assert producers(compiled(tiny_cpu())[stage], key) == {producer}


def test_the_resolver_reads_the_candidate_and_the_models_of_any_run(compiled):
    channels = {}
    for named in compiled(tiny_cpu())["Baseline"].inputs.inputs.values():
        for channel in named.channels:
            of_this_run = any(query.type.name == "pipeline_run" for query in channel.context_queries)
            channels[channel.artifact_query.type.name, channel.producer_node_query.id] = of_this_run
    assert channels == {("Model", "Trainer"): True, ("Model", ""): False, ("ModelBlessing", ""): False}


def test_settings_reach_their_stages_and_only_those(compiled, tmp_path):
    before = compiled(tiny_cpu())
    for setting, changed in {
        "corpus.segments=lines": {"CorpusGen"},
        "vocabulary.min_word_count=3": {"VocabGen"},
        "examples.seed=7": {"PretrainExampleGen"},
        "training.seed=7": {"Trainer"},
        "gate.min_mlm_accuracy=0.3": {"Evaluator"},
        "serving.max_latency_ms=5": {"ServingValidator"},
        "data.max_unknown_fraction=0.3": {"ExampleGate"},
        "model.vocab_size=9000": {"VocabGen", "ImportSchemaGen", "Trainer"},
        "examples.masking.max_predictions_per_seq=9": {"PretrainExampleGen", "ImportSchemaGen"},
    }.items():
        after = compiled(with_settings(tiny_cpu(), [setting]))
        assert {stage for stage in STAGES if after[stage].parameters != before[stage].parameters} == changed, setting


def test_the_initial_source_has_the_name_of_its_licence_file(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (before,) = initial_source(str(tmp_path)).outputs.values()
    assert before.additional_custom_properties["licence"] == ""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/Licence.md").write_text("MIT")
    (after,) = initial_source(str(tmp_path)).outputs.values()
    assert after.additional_custom_properties["licence"] == "a/Licence.md"


def test_a_reference_corpus_is_scored_and_not_trained_on(compiled, tmp_path):
    files = [InputFile(str(tmp_path / "text.txt"), 11)]
    initial = initial_source(str(tmp_path), read=False)
    recipe = with_settings(tiny_cpu(), ["gate.max_forgetting=0.1"])
    nodes = compiled(recipe, initial=initial, reference=files)
    of_reference = {"CorpusGen_reference", "PretrainExampleGen_reference"}
    assert set(nodes) == {*STAGES, *of_reference, "InitialSource", "InitialModel"}
    assert producers(nodes["Evaluator"], "reference_examples") == {"PretrainExampleGen_reference"}
    assert producers(nodes["Evaluator"], "initial_model") == {"InitialModel"}
    assert producers(nodes["PretrainExampleGen_reference"], "vocabulary") == {"VocabGen"}
    # Examples as the held-out ones, of all documents.
    settings = [parameter(nodes[f"PretrainExampleGen{of}"], "settings") for of in ("", "_reference")]
    assert settings[0] == settings[1]
    corpus = json.loads(parameter(nodes["CorpusGen_reference"], "settings").string_value)
    assert hash_slot(b"\xff" * 16, corpus["eval_fraction"]) >= SLOTS_A_SPLIT
    assert not {"CorpusGen_reference", "PretrainExampleGen_reference"} & set(nodes["Trainer"].upstream_nodes)
    forgetting = json.loads(parameter(nodes["Evaluator"], "forgetting").string_value)
    assert forgetting == {"part": "mlm", "max_forgetting": 0.1}
    assert parameter(nodes["InitialModel"], "judged").string_value == "true"


def test_replayed_examples_are_trained_on_and_not_held_out(compiled, tmp_path):
    nodes = compiled(tiny_cpu(), replay=[InputFile(str(tmp_path / "text.txt"), 11)])
    assert set(nodes) == {*STAGES, "CorpusGen_replay", "PretrainExampleGen_replay"}
    assert producers(nodes["Trainer"], "examples") == {"PretrainExampleGen", "PretrainExampleGen_replay"}
    assert producers(nodes["Evaluator"], "examples") == {"PretrainExampleGen"}
    flags = [parameter(nodes[f"PretrainExampleGen{of}"], "replay").int_value for of in ("", "_replay")]
    assert flags == [0, 1]
    corpus = json.loads(parameter(nodes["CorpusGen_replay"], "settings").string_value)
    assert hash_slot(b"\0\0\0\1" + b"\0" * 12, corpus["eval_fraction"]) < SLOTS_A_SPLIT


def test_a_second_phase_has_replayed_examples_of_its_own(compiled, tmp_path):
    recipe = with_settings(tiny_cpu(), ["second_phase.num_train_steps=100", "second_phase.max_seq_length=128"])
    nodes = compiled(recipe, replay=[InputFile(str(tmp_path / "text.txt"), 11)])
    made = [f"PretrainExampleGen{of}" for of in ("", "_second_phase", "_replay", "_replay_second_phase")]
    assert producers(nodes["Trainer"], "examples") == {*made}
    lengths = [json.loads(parameter(nodes[node], "settings").string_value)["max_seq_length"] for node in made]
    assert lengths == [64, 128, 64, 128]
    assert [parameter(nodes[node], "replay").int_value for node in made] == [0, 0, 1, 1]
    assert {stage_of(node) for node in made} == {"PretrainExampleGen"}


def test_other_weights_of_sources_only_train_anew(compiled):
    before = compiled(tiny_cpu())
    after = compiled(with_settings(tiny_cpu(), ["training.source_weights=web:3,law:1"]))
    assert set(after) == set(before)
    changed = {stage for stage in STAGES if after[stage].parameters != before[stage].parameters}
    assert changed == {"Trainer"}


def test_documents_of_an_earlier_run_reach_the_corpus(compiled, tmp_path):
    nodes = compiled(tiny_cpu(), earlier=earlier_documents(str(tmp_path)))
    assert set(nodes) == {*STAGES, "EarlierDocuments"}
    assert producers(nodes["CorpusGen"], "earlier") == {"EarlierDocuments"}


def test_a_given_vocabulary_reaches_its_stage(compiled, tmp_path):
    before, paths = compiled(tiny_cpu()), []
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name)
        after = compiled(tiny_cpu(), InputFile(str(tmp_path / name), len(name)))
        assert {stage for stage in STAGES if after[stage].parameters != before[stage].parameters} == {"VocabGen"}
        paths.append(json.loads(parameter(after["VocabGen"], "given").string_value))
    assert paths[0] != paths[1]


def test_the_same_recipe_gives_the_same_parameters(compiled):
    first, second = compiled(tiny_cpu()), compiled(tiny_cpu())
    assert all(first[stage].parameters == second[stage].parameters for stage in STAGES)


def test_the_trainer_receives_the_recipe_and_the_code_version(compiled, tmp_path):
    node = compiled(tiny_cpu())["Trainer"]
    assert parameter(node, "run_fn").string_value == "components.trainer.pretrain.run_fn"
    assert "module_file" not in node.parameters.parameters
    job = PretrainJob.from_json(parameter(node, "custom_config").string_value)
    recipe = tiny_cpu()
    for field in ("model", "training", "second_phase", "pretraining", "export"):
        assert getattr(job, field) == getattr(recipe, field)
    # TFX deletes a failed stage's outputs: checkpoints are elsewhere.
    assert job.training_root == str(tmp_path / "run/training")
    assert len(job.code) == 64


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
        ("components/serving_validator/check.py", {"ServingValidator"}),
        ("serving/models/servable.py", {"ServingValidator"}),
    ],
)
def test_changed_code_misses_the_cache(compiled, monkeypatch, file, stages):
    before = compiled(tiny_cpu())
    changed, code = (code_version.ROOT / file).read_bytes(), code_version._code
    monkeypatch.setattr(
        code_version,
        "_code",
        lambda source, *more: ("changed", code(source)[1]) if source == changed else code(source, *more),
    )
    after = compiled(tiny_cpu())
    assert {stage for stage in STAGES if before[stage].parameters != after[stage].parameters} == stages


def test_the_schema_is_the_curated_one(compiled, tmp_path):
    recipe = tiny_cpu()
    path = parameter(compiled(recipe)["ImportSchemaGen"], "schema_file").string_value
    assert os.path.dirname(path) == str(tmp_path / "run/schema")
    with open(path) as file:
        schema = text_format.Parse(file.read(), schema_pb2.Schema())
    assert schema == example_schema(recipe.examples.layout, recipe.model.vocab_size)


OF_A_PHASE = ["PretrainExampleGen", "StatisticsGen", "ImportSchemaGen", "ExampleValidator", "ExampleGate"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_compiles(compiled, name):
    recipe = RECIPES[name]()
    second = [stage + "_second_phase" for stage in OF_A_PHASE] if recipe.second_phase.num_train_steps else []
    assert sorted(compiled(recipe)) == sorted(STAGES + second)


def test_a_second_phase_has_its_own_examples_for_training_and_evaluation(compiled):
    nodes = compiled(RECIPES["bert_base"]())
    assert producers(nodes["Trainer"], "examples") == {"PretrainExampleGen", "PretrainExampleGen_second_phase"}
    assert {"ExampleGate", "ExampleGate_second_phase"} <= set(nodes["Trainer"].upstream_nodes)
    assert producers(nodes["Evaluator"], "examples") == {"PretrainExampleGen_second_phase"}
    lengths = [
        json.loads(parameter(nodes["PretrainExampleGen" + suffix], "settings").string_value)["max_seq_length"]
        for suffix in ("", "_second_phase")
    ]
    assert lengths == [128, 512]
