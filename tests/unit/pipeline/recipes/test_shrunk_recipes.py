"""Every recipe, shrunk, from text through its examples to a training step of its model."""

import json
import math
import typing
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data.example_format import ExampleSpec
from bert_keras.errors import InputError
from bert_keras.jobs import PretrainJob
from bert_keras.objectives.registry import pretraining_model
from bert_keras.objectives.table import PARTS
from bert_keras.pretraining import pretrain
from pipeline.examples.generate import ExampleJob, generate
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import _keys, settings_of, with_settings

TEXT = Path(__file__).parents[4] / "docs" / "training.md"
SHRUNK = {
    "model.vocab_size": 320,
    "model.num_hidden_layers": 1,
    "model.hidden_size": 32,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 64,
    "corpus.eval_fraction": 0.1,
    "vocabulary.min_word_count": 1,
    "examples.max_seq_length": 32,
    "examples.dupe_factor": 1,
    "examples.masking.max_predictions_per_seq": 8,
    "second_phase.num_train_steps": 0,
    "training.train_batch_size": 8,
    "training.gradient_accumulation_steps": 1,
    "training.budget": "None",
    "training.num_train_steps": 2,
    "training.num_warmup_steps": 1,
    "training.eval_batches": 1,
    "training.eval_batch_size": 1,
    "training.steps_per_execution": 1,
    "training.strategy": "one_device",
    "training.mixed_precision": "float32",
    "training.jit_compile": "false",
}
# One of each family but BERT, which the byte-level BPE below learns with; the other sizes differ in numbers.
FAMILIES = (
    "left_to_right_tiny",
    "elmo_tiny",
    "roberta_tiny",
    "spanbert_tiny",
    "modern_tiny",
    "electra_small",
    "albert_tiny",
)
LEARNED = {"left_to_right": "left_to_right", "elmo": "bidirectional", "spanbert": "span_boundary", "electra": "electra"}
LEARNED |= {"albert": "mlm_sop", "deberta_v3": "electra", "ten_million": "gpt_bert"}
# Of these no other test compiles the steps; objectives/test_registry.py and test_pretraining.py do those of the others.
COMPILED = ("elmo", "modern", "albert")


@pytest.fixture
def uncompiled():
    """Takes the steps operation by operation: two of them are done before a graph is made."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAMILIES else pytest.mark.slow) for name in RECIPES]
)
def test_a_shrunk_recipe_makes_its_examples_and_learns_from_them(name, tmp_path, monkeypatch, request):
    # Narrower embeddings stay so.
    sizes = RECIPES[name]().model.hidden_size, RECIPES[name]().pretraining.embedding_size
    narrow = {"pretraining.embedding_size": 16 if sizes[1] < sizes[0] else 32}
    narrow |= {"model.embedding_width": 16} if RECIPES[name]().model.embedding_width else {}
    recipe = with_settings(RECIPES[name](), [f"{key}={value}" for key, value in {**SHRUNK, **narrow}.items()])
    family = name.rpartition("_")[0] or name
    if family not in COMPILED:
        request.getfixturevalue("uncompiled")
    expected = LEARNED.get(family, "mlm_nsp" if name.startswith(("bert_", "tiny_")) else "mlm")
    assert recipe.pretraining_objective == expected
    learn(recipe, tmp_path, monkeypatch)
    merges = tmp_path / "examples" / "merges.txt"
    assert merges.exists() == (recipe.vocabulary.algorithm == "byte_bpe") == (family == "roberta")


def learn(recipe, folder, monkeypatch):
    """Make the examples of a shrunk recipe, and take its steps."""
    made = ExampleJob(recipe.corpus, recipe.vocabulary, recipe.examples)
    examples = str(folder / "examples")
    generate([str(TEXT)], examples, made, vocab_file=None, vocab_size=recipe.model.vocab_size, beam_args=[])
    spec = ExampleSpec.load(examples)
    shape = with_settings(recipe, [f"model.vocab_size={spec.vocab_size}"]).model
    folders = {name: str(folder / name) for name in ("output_dir", "logs_dir", "training_root")}
    trained: list = []
    monkeypatch.setattr("bert_keras.pretraining.export_with_examples", lambda model, *_, **__: trained.append(model))
    job = PretrainJob(
        examples=(examples,), model=shape, training=recipe.training, pretraining=recipe.pretraining, **folders
    )
    pretrain(job)
    create, objective = pretraining_model(recipe.pretraining, spec.objective, shape, recipe.training.seed)
    before, (after,) = create(), trained
    moved = [not np.array_equal(*pair) for pair in zip(before.get_weights(), after.get_weights(), strict=True)]
    assert sum(moved) > len(moved) * 2 / 3
    (first, *_) = [json.loads(line) for line in (folder / "logs_dir" / "log.jsonl").read_text().splitlines()]
    assert set(objective.metrics(dict.fromkeys(objective.sums, 1.0))) <= first.keys()
    for part in PARTS[recipe.pretraining_objective]:
        assert 0 < first[f"{part.key}_loss"] < 2 * math.log(spec.vocab_size)


@pytest.mark.parametrize(
    ("family", "objective", "unit"),
    [
        ("bert", "mlm_nsp", "whole_word"),
        pytest.param("bert", "segment_pair", "ngram", marks=pytest.mark.slow),
        pytest.param("bert", "left_to_right", "token", marks=pytest.mark.slow),
        pytest.param("bert", "doc_sentences", "token", marks=pytest.mark.slow),
        pytest.param("spanbert", "single_sequence", "span", marks=pytest.mark.slow),
        pytest.param("electra", "single_sequence", "token", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("uncompiled")
def test_every_objective_learns_from_byte_level_bpe(family, objective, unit, tmp_path, monkeypatch):
    causal = objective == "left_to_right"
    settings = {
        **SHRUNK,
        "vocabulary.algorithm": "byte_bpe",
        "pretraining.model_family": family,
        "examples.objective": objective,
        "examples.packing": "true",
        "examples.masking.unit": unit,
        "examples.masking.when": "static" if causal else "dynamic",
        "model.causal": causal,
    }
    recipe = with_settings(RECIPES["tiny_cpu"](), [f"{key}={value}" for key, value in settings.items()])
    learn(recipe, tmp_path, monkeypatch)
    assert (tmp_path / "examples" / "merges.txt").exists()


# Not run: several devices, machines and mixed precision have their own tests.
ELSEWHERE = ("training.strategy", "training.mixed_precision")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny_cpu", "roberta_tiny", "spanbert_tiny", "electra_tiny", "left_to_right_tiny"])
def test_every_value_of_every_setting_learns_or_is_refused_in_a_line(name, tmp_path, monkeypatch):
    recipe = with_settings(RECIPES[name](), [f"{key}={value}" for key, value in SHRUNK.items()])
    tried, problems = 0, []
    for key, kind in _keys(recipe).items():
        values = (True, False) if kind is bool else typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        if key.partition(".")[0] not in ("vocabulary", "examples", "model", "pretraining", "training"):
            continue
        for value in {*values} - {settings_of(recipe)[key]} if key not in ELSEWHERE else ():
            tried += 1
            folder = tmp_path / str(tried)
            folder.mkdir()
            try:
                learn(with_settings(recipe, [f"{key}={value}"]), folder, monkeypatch)
            except Exception as error:
                text = f"{name} {key}={value}: {type(error).__name__}: {error}"
                print(text)
                if not isinstance(error, InputError) or "\n" in str(error) or "not yet" in str(error):
                    problems.append(text)
    assert tried > 20 and not problems, "\n".join(problems)
