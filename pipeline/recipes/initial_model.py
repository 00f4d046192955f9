"""A recipe that continues from an initial model: the model's architecture and vocabulary win over the recipe's."""

import dataclasses
from collections.abc import Sequence

from bert_keras.errors import InputError
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import extended_size
from pipeline.recipes.settings import Recipe, settings_of, with_settings

_STEPS = "training.num_train_steps"


def with_initial_model(
    recipe: Recipe, init: str | None, cased: bool | None, settings: Sequence[str], teacher: str | None = None
) -> Recipe:
    """Apply settings to a recipe whose encoder and vocabulary are those of an initial model, if there is one.

    Without one the vocabulary is that of the `teacher`, if there is one.

    `cased`: whether its vocabulary keeps case; None: as the folder says. InputError: the folder cannot be an initial
    model, a setting contradicts it, there are no steps, or the recipe or a setting needs an initial model.
    """
    if not init:
        if recipe.needs_init:
            raise InputError(
                f"{recipe.name}: this recipe continues the training of a model: give it with --init DIR; to train one "
                "from random weights, choose another recipe (bert-tfx recipes)"
            )
        known: dict[str, object] = {}
        if teacher:
            from bert_keras.convert.initial_weights import initial_folder

            folder, tokenizer = initial_folder(teacher, cased)
            known = {"model.vocab_size": folder.config.vocab_size, **_vocabulary_settings(tokenizer)}
        chosen = with_settings(recipe, settings, known)
        for name, value in known.items():
            if settings_of(chosen)[name] != value:
                raise InputError(f"--set {name}: the teacher {teacher} has {value}; remove the setting")
        if chosen.training.freeze_initial:
            raise InputError("training.freeze_initial: keeps the weights of an initial model; give it with --init DIR")
        return chosen
    steps = [value.strip() for key, _, value in (s.partition("=") for s in settings) if key.strip() == _STEPS]
    if steps[-1:] == ["0"]:
        raise InputError(
            f"--set {_STEPS}=0: nothing would be trained; `bert-tfx convert --to bert-tfx` exports {init} as it is, "
            "and any run with --init has the model at step 0, with its new words, in RUN_DIR/artifacts/InitialModel"
        )
    from bert_keras.convert.initial_weights import check_family, differences, electra_sizes, initial_folder

    folder, tokenizer = initial_folder(init, cased)
    config = folder.config
    given: dict[str, object] = {f"model.{name}": value for name, value in dataclasses.asdict(config).items()}
    given |= _vocabulary_settings(tokenizer)
    chosen = with_settings(recipe, settings, given)
    is_electra = chosen.pretraining.model_family == "electra"
    check_family(folder, is_electra)
    if is_electra:
        given |= {f"pretraining.{name}": value for name, value in electra_sizes(folder).items()}
        chosen = with_settings(recipe, settings, given)
    size = extended_size(tokenizer.vocabulary, chosen.vocabulary.extend)
    wrong = {f"model.{name}": getattr(config, name) for name in differences(chosen.model, config)}
    fixed = [name for name in given if not name.startswith("model.")]
    wrong |= {name: given[name] for name in fixed if settings_of(chosen)[name] != given[name]}
    if chosen.model.vocab_size not in (config.vocab_size, size):
        wrong["model.vocab_size"] = size
    for name, value in wrong.items():
        raise InputError(f"--set {name}: the initial model {init} has {value}; remove the setting")
    return dataclasses.replace(chosen, model=dataclasses.replace(chosen.model, vocab_size=size))


def _vocabulary_settings(tokenizer: Tokenizer) -> dict[str, object]:
    rules = tokenizer.normalization.fields if isinstance(tokenizer, BertTokenizer) else {}
    return {"vocabulary.algorithm": tokenizer.algorithm, **{f"vocabulary.{name}": rules[name] for name in rules}}
