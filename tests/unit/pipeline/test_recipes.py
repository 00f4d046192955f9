"""Every recipe builds, says how it is run, and can be asked for by its name."""

import dataclasses

import pytest

from pipeline.config import Recipe
from pipeline.recipes import RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_and_says_its_command(name):
    recipe = RECIPES[name]()
    assert isinstance(recipe, Recipe) and recipe.name == name
    assert recipe == RECIPES[name]()
    documented = RECIPES[name].__doc__
    assert ("make demo" if name == "tiny_cpu" else f"bert-tfx pretrain {name} --corpus") in documented
    # `bert-tfx recipes` prints the first line.
    assert documented.splitlines()[0].strip()


def test_a_recipe_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECIPES["tiny_cpu"]().model.hidden_size = 1


def test_all_of_googles_sizes():
    """L and H of the miniatures, base and large; heads are 64 wide, the feed-forward layer is four times as wide."""
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
    assert sizes.keys() | {"tiny_cpu"} == RECIPES.keys()
