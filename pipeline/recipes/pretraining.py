"""Recipes of pre-training: functions that return a `Recipe`, run by `bert-tfx pretrain NAME` and changed by `--set`.

Every recipe learns the vocabulary of its own text, of size `model.vocab_size`. `bert-tfx recipes` prints the first line
of its docstring, `bert-tfx recipes NAME` also command, hardware, time and what to expect.
"""

from collections.abc import Callable

from bert_keras.errors import InputError
from pipeline.recipes import albert, bert, language_models, relatives
from pipeline.recipes.settings import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (
        bert.tiny_cpu,
        bert.ten_million_words,
        *(*bert.MINIATURES, bert.bert_base, bert.bert_large),
        *(language_models.left_to_right_tiny, language_models.left_to_right_base),
        *(language_models.elmo_tiny, language_models.elmo),
        *(relatives.roberta_tiny, relatives.roberta_base, relatives.roberta_large),
        *(relatives.spanbert_tiny, relatives.spanbert_base),
        *(relatives.modern_tiny, relatives.modern_small, relatives.modern_base),
        *(albert.albert_tiny, albert.albert_base, albert.albert_large),
        *(relatives.electra_tiny, relatives.electra_small, relatives.electra_base, relatives.electra_large),
        *(relatives.deberta_v3_base, bert.continued),
    )
}


def recipe_of(name: str) -> Recipe:
    """Look up a recipe by name; InputError, which names the known ones, if there is none."""
    if name not in RECIPES:
        raise InputError(f"{name}: no such recipe; there are {', '.join(RECIPES)}")
    return RECIPES[name]()
