"""This project's own folder of a model: a SavedModel that takes raw text, with weights, configuration and vocabulary.

What the Trainers export and the Pusher pushes (`bert_keras.export`, `bert_keras.tasks.served`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bert_keras.errors import InputError
from bert_keras.features import VOCABULARY_FILE, VOCABULARY_SPEC_FILE, ExampleLayout
from bert_keras.interchange import files, transfer, vocabularies
from bert_keras.interchange.names import Family, Part
from bert_keras.interchange.transfer import ReadModel, Written
from bert_keras.interchange.vocabularies import Tokenizer

if TYPE_CHECKING:
    from bert_keras.config import BertConfig
    from bert_keras.electra import ElectraConfig
    from bert_keras.interchange.architecture import Model
    from bert_keras.tasks.table import Task

# P of the examples that the `evaluate` signature reads: the original's default.
_MAX_PREDICTIONS = 20
_WHOSE = "the folders that bert-tfx serves"
# What `bert_config.json` has of an ELECTRA beside a `BertConfig`'s fields.
_ELECTRA_SIZES = ("embedding_size", "generator_size")


def read_pushed(directory: str) -> ReadModel:
    """Reads a model that the pipeline pushed, or `write_pushed` wrote; of a fine-tuned one the encoder.

    Of an ELECTRA it is the discriminator (`bert_keras.export.export_saved_model`).

    Raises:
        InputError: a file is missing, damaged, or of another size than the configuration says.
    """
    import json

    from bert_keras.config import BertConfig
    from bert_keras.electra import ElectraConfig
    from bert_keras.export import CONFIG_FILE, WEIGHTS_FILE

    path = os.path.join(directory, CONFIG_FILE)
    try:
        text = files.read_text(path)
        config = BertConfig.from_json(text)
        sizes = {name: value for name, value in json.loads(text).items() if name in _ELECTRA_SIZES}
        electra = ElectraConfig(config, **sizes) if sizes else None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    spec = os.path.join(directory, VOCABULARY_SPEC_FILE)
    fields = json.loads(files.read_text(spec)) if os.path.exists(spec) else {}
    tokens, merges = _read_vocabulary(directory, config, fields.get("algorithm") == "byte_bpe")
    weights = os.path.join(directory, WEIGHTS_FILE)
    if not os.path.exists(weights):
        raise InputError(f"{weights} is not there; the folder of a pushed model has it")
    model, task = _new_model(directory, electra or config)
    try:
        model.load_weights(weights)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{weights}: is not the weights of {CONFIG_FILE} beside it ({reason})") from error
    lower_case = fields.get("lower_case")
    if task is not None:
        remarks = (f"the output layer of {task.name} in {directory} is dropped",)
        # No other has a vocabulary of byte-level BPE.
        family: Family = "bert" if merges is None else "roberta"
        return ReadModel(model.backbone, tokens, lower_case, (), merges, family, remarks)
    return ReadModel(model, tokens, lower_case, (), family="electra" if electra else "bert")


def read_tokenizer(directory: str) -> Tokenizer:
    """The tokenizer of a model that the pipeline trained.

    Raises:
        InputError: a file of it is missing or damaged.
    """
    from bert_keras.byte_bpe import ByteBpeTokenizer
    from bert_keras.config import BertConfig
    from bert_keras.export import CONFIG_FILE
    from bert_keras.tokenizer import BertTokenizer

    config = BertConfig.from_json(files.read_text(os.path.join(directory, CONFIG_FILE)))
    fields = files.read_json(os.path.join(directory, VOCABULARY_SPEC_FILE))
    tokens, merges = _read_vocabulary(directory, config, fields["algorithm"] == "byte_bpe")
    if tokens is None:
        raise InputError(f"{directory}: has no vocabulary; a model that the pipeline trained has one")
    return BertTokenizer(tokens, fields["lower_case"]) if merges is None else ByteBpeTokenizer(tokens, merges)


def _read_vocabulary(
    directory: str, config: BertConfig, byte_bpe: bool
) -> tuple[list[str] | None, list[tuple[str, str]] | None]:
    """Tokens, and merges of byte-level BPE."""
    from bert_keras.export import CONFIG_FILE

    if not byte_bpe:
        return vocabularies.read_wordpiece(os.path.join(directory, VOCABULARY_FILE), config, CONFIG_FILE), None
    names = vocabularies.BPE_VOCABULARY_FILE, vocabularies.MERGES_FILE
    found = vocabularies.read_byte_bpe(directory, names, config, CONFIG_FILE)
    return (found.tokens, found.merges) if found else (None, None)


def _new_model(directory: str, config: BertConfig | ElectraConfig) -> tuple[Any, Task | None]:
    """A built model of the class whose weights a folder holds, and its task; None: it was pre-trained."""
    from bert_keras.electra import ElectraConfig, ElectraDiscriminator
    from bert_keras.heads import BertForPreTraining
    from bert_keras.tasks.kinds import kind_of
    from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TASK_SPEC_FILE, TaskSettings, TaskSpec

    if isinstance(config, ElectraConfig):
        discriminator = ElectraDiscriminator(config)
        discriminator.build()
        return discriminator, None
    model, task = BertForPreTraining(config), None
    if os.path.exists(os.path.join(directory, TASK_SPEC_FILE)):
        task = TaskSpec.load(directory).task
        path = os.path.join(directory, TASK_SETTINGS_FILE)
        try:
            settings = TaskSettings(**files.read_json(path))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: {error}") from error
        model = kind_of(task).create_model(config, task, settings, seed=0)
    model.build()
    return model, task


def write_pushed(model: Model, tokenizer: Tokenizer | None, directory: str, family: Family | None = None) -> Written:
    """Writes a SavedModel with all its signatures; heads that the model has not are drawn like a new model's.

    Raises:
        InputError: there is no vocabulary, or not the model's (the served graph cuts text by it), or the model is
            causal or no BERT. Nothing is written.
    """
    from bert_keras.export import export_saved_model
    from bert_keras.heads import BertForPreTraining

    config = transfer.only_bert(model, family, _WHOSE)
    tokenizer = vocabularies.wordpiece(tokenizer, _WHOSE)
    if tokenizer is None:
        raise InputError("a model that takes raw text needs a vocabulary: give a source with a vocab.txt")
    vocabularies.check_tokenizer(tokenizer, config)
    drawn: tuple[Part, ...] = ()
    if not isinstance(model, BertForPreTraining):
        backbone, model = model, BertForPreTraining(config)
        model.build()
        model.backbone.set_weights(backbone.get_weights())
        drawn = ("masked-LM head", "next-sentence head")
    layout = ExampleLayout.bert(config.max_position_embeddings, _MAX_PREDICTIONS)
    with files.staged(directory) as temporary:
        export_saved_model(model, tokenizer, temporary, layout)
    return Written(drawn)
