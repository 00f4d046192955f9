"""Every recipe builds, documents its command, and is found by its name."""

import dataclasses
import inspect
import re

import pytest

from bert_keras.errors import InputError
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import Recipe, settings_of, with_settings
from tests.support.models import electra_sizes
from tests.support.models.tiny_encoders import roberta_config
from tests.support.pipeline.command_line import bert_tfx


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_and_documents_its_hardware(name):
    recipe = RECIPES[name]()
    assert isinstance(recipe, Recipe) and recipe.name == name
    assert recipe == RECIPES[name]()
    documented = inspect.getdoc(RECIPES[name])
    assert "\nHardware:  " in documented and "\nTime:      " in documented
    # `bert-tfx recipes` prints the first line.
    assert documented.splitlines()[0].strip()


def test_recipes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECIPES["tiny_cpu"]().model.hidden_size = 1


def test_all_published_sizes():
    """L and H of the miniatures, base and large; heads are 64 wide, the feed-forward layer is 4 H wide."""
    sizes = {
        "bert_tiny": (2, 128),
        "bert_mini": (4, 256),
        "bert_small": (4, 512),
        "bert_medium": (8, 512),
        "bert_base": (12, 768),
        "bert_large": (24, 1024),
    }
    for name, (layers, hidden) in sizes.items():
        model = RECIPES[name]().model
        assert (model.num_hidden_layers, model.hidden_size) == (layers, hidden)
        assert (model.num_attention_heads, model.intermediate_size) == (hidden // 64, 4 * hidden)
        assert (model.vocab_size, model.max_position_embeddings, model.type_vocab_size) == (30522, 512, 2)


# Layers, H, V, T, P, batch, steps, warm-up, rate, objective: arXiv 1907.10529, section 4.2; 1907.11692, table 9;
# 2003.10555, table 6, and P of google-research/electra, configure_pretraining.py; Devlin et al., section 5.1.
PUBLISHED = {
    "left_to_right_base": (12, 768, 30522, 128, 20, 256, 1_000_000, 10_000, 1e-4, "left_to_right"),
    "spanbert_base": (12, 768, 28996, 512, 77, 256, 2_400_000, 10_000, 1e-4, "span_boundary"),
    "roberta_base": (12, 768, 50265, 512, 77, 8192, 500_000, 24_000, 6e-4, "mlm"),
    "roberta_large": (24, 1024, 50265, 512, 77, 8192, 500_000, 30_000, 4e-4, "mlm"),
    "electra_small": (12, 256, 30522, 128, 19, 128, 1_000_000, 10_000, 5e-4, "electra"),
    "electra_base": (12, 768, 30522, 512, 79, 256, 766_000, 10_000, 2e-4, "electra"),
    "electra_large": (24, 1024, 30522, 512, 130, 2048, 400_000, 10_000, 2e-4, "electra"),
}
ADAM = ("optimizer", "beta_2", "epsilon", "weight_decay", "schedule")
OPTIMIZERS = {
    "left_to_right": ("bert_adam", 0.999, 1e-6, 0.01, "bert"),
    "spanbert": ("adamw", 0.999, 1e-8, 0.1, "linear"),
    "roberta": ("adamw", 0.98, 1e-6, 0.01, "linear"),
    "electra": ("bert_adam", 0.999, 1e-6, 0.01, "bert"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_relatives_of_bert_have_the_settings_of_their_papers(name):
    recipe = RECIPES[name]()
    model, examples, training = recipe.model, recipe.examples, recipe.training
    assert (
        *(model.num_hidden_layers, model.hidden_size, model.vocab_size, examples.max_seq_length),
        *(examples.masking.max_predictions_per_seq, training.train_batch_size, training.num_train_steps),
        *(training.num_warmup_steps, training.learning_rate, recipe.pretraining_objective),
    ) == PUBLISHED[name]
    assert (model.num_attention_heads, model.hidden_dropout_prob) == (model.hidden_size // 64, 0.1)
    family = name.rpartition("_")[0]
    assert tuple(getattr(training, field) for field in ADAM) == OPTIMIZERS[family]
    phases = [examples.max_seq_length for examples in recipe.example_sets]
    assert phases == ([128, 512] if family == "left_to_right" else [PUBLISHED[name][3]])
    assert model.causal == (family == "left_to_right")
    # Masked anew in each epoch, if at all.
    assert family == "left_to_right" or examples.masking.when == "dynamic"


def test_what_only_one_family_has():
    roberta, small, base, large = (RECIPES[f"{n}"]() for n in ("roberta_base", *map("electra_{}".format, SIZES)))
    # As `roberta_config`, which published weights fit; the vocabulary is learned.
    assert roberta.model == roberta_config(12, 768)
    assert (roberta.vocabulary.algorithm, roberta.examples.objective) == ("byte_bpe", "full_sentences")
    assert roberta.training.decay_all and roberta.training.clip_norm > 1e6
    sizes = [(r.pretraining.embedding_size, round(1 / r.pretraining.generator_size)) for r in (small, base, large)]
    assert sizes == [(128, 4), (768, 3), (1024, 4)]
    assert [r.examples.masking.masked_lm_prob for r in (small, base, large)] == [0.15, 0.15, 0.25]
    for recipe, config in ((small, electra_sizes.SMALL), (base, electra_sizes.BASE), (large, electra_sizes.LARGE)):
        assert recipe.model == config.discriminator


SIZES = ("small", "base", "large")


def test_the_list_is_narrow_and_names_every_recipe_with_its_command():
    """A terminal has some 120 columns. One recipe's command, hardware and time come before its settings."""
    code, out, err = bert_tfx("recipes")
    lines = out[: out.index("bert-tfx finetune TASK")].splitlines()
    assert (code, err) == (0, "") and max(map(len, lines)) <= 120
    assert [line.split()[0] for line in lines[1:]] == [*RECIPES]
    code, out, err = bert_tfx("recipes", "electra_small")
    said, settings = out[: (start := out.index("model.vocab_size="))], out[start:]
    assert (code, err) == (0, "") and all(line.startswith("#") for line in said.splitlines())
    assert "# Time:      4 days (paper, table 1)\n" in said and "bert-tfx pretrain electra_small --corpus" in said
    assert bert_tfx("recipes", "tiny_cpu")[1].count("# Command:   make demo\n") == 1
    assert "pretraining.embedding_size=128\n" in settings


def test_the_sections_of_a_recipe():
    sections = {"data", "task", "training", "gate", "distillation", "search", "restarts", "serving", "slices", "export"}
    assert {key.partition(".")[0] for key in settings_of(finetuning("sst-2"))} == sections


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
