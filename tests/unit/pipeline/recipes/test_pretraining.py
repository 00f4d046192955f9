"""Every recipe builds, documents its command, and is found by its name."""

import dataclasses

import pytest

from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import Recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_and_documents_its_command(name):
    recipe = RECIPES[name]()
    assert isinstance(recipe, Recipe) and recipe.name == name
    assert recipe == RECIPES[name]()
    documented = RECIPES[name].__doc__
    assert ("make demo" if name == "tiny_cpu" else f"bert-tfx pretrain {name} --corpus") in documented
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
    assert sizes.keys() | {"tiny_cpu", "spanbert_base", "electra_base", "continued"} == RECIPES.keys()


@pytest.mark.parametrize(
    ("name", "learned", "vocab_size", "predictions", "steps"),
    [("spanbert_base", "span_boundary", 28996, 77, 2_400_000), ("electra_base", "electra", 30522, 79, 766_000)],
)
def test_relatives_of_bert(name, learned, vocab_size, predictions, steps):
    """What their papers say: one phase at 512 tokens, masked anew in each epoch."""
    recipe = RECIPES[name]()
    assert (recipe.pretraining_objective, recipe.model.vocab_size, recipe.training.num_train_steps) == (
        learned,
        vocab_size,
        steps,
    )
    assert [examples.max_seq_length for examples in recipe.example_sets] == [512]
    masking = recipe.examples.masking
    assert (masking.max_predictions_per_seq, masking.when) == (predictions, "dynamic")
    # What is fine-tuned has embeddings as wide as its encoder.
    assert name != "electra_base" or recipe.pretraining.embedding_size == recipe.model.hidden_size
