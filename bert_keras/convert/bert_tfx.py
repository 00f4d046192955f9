"""This project's model folder: a SavedModel that takes raw text, with weights, configuration and vocabulary.

The Trainers export and the Pusher pushes it (`bert_keras.saved_model.pretrained`,
`bert_keras.saved_model.task_signatures`).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras import files
from bert_keras.convert import weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, family_of, generator_size, has_vocabulary
from bert_keras.convert.weight_copy import Outline, ReadModel, Written
from bert_keras.convert.weight_map import Family
from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.saved_model.settings import (
    CONFIG_FILE,
    EMBEDDING_FIELD,
    LENGTH_FIELD,
    EmbeddingSettings,
    ExportSettings,
)
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, check_order
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.unicode_tables import normalization_fields
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_FILE, VOCABULARY_SPEC_FILE, Tokenizer, Vocabulary

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model
    from bert_keras.models.electra import ElectraConfig, ElectraGenerator
    from bert_keras.tasks.settings import TaskSettings
    from bert_keras.tasks.table import Task

# P of the examples that the `evaluate` signature reads: the original's default.
_MAX_PREDICTIONS = 20
_WHOSE = "the folders that bert-tfx serves"
# Fields of an ELECTRA's `bert_config.json` that `BertConfig` lacks.
_ELECTRA_SIZES = ("embedding_size", "generator_size")


def read_pushed(directory: str) -> ReadModel:
    """Read a model that the pipeline pushed or `write_pushed` wrote; only the encoder of a fine-tuned model.

    A BERT with byte-level BPE is read as a RoBERTa. An ELECTRA is read as its discriminator, and its
    generator if the folder has it (`bert_keras.saved_model.pretrained.export_saved_model`).

    Raises:
        InputError: a file is missing, damaged, or does not fit the configuration.
    """
    from bert_keras.models.roberta import RobertaForMaskedLM
    from bert_keras.saved_model.pretrained import UNTRAINED_FIELD, WEIGHTS_FILE

    config, electra = _read_config(directory)
    fields = _vocabulary_spec(directory)
    vocabulary = _read_vocabulary(directory, config, fields.get("algorithm"))
    tokens, merges = (vocabulary.tokens, vocabulary.merges) if vocabulary else (None, None)
    further: dict[str, Any] = {"embedding": _read_embedding(directory)}
    further |= {"sentencepiece": vocabulary.sentencepiece} if vocabulary else {}
    weights, family = os.path.join(directory, WEIGHTS_FILE), _family(config, electra, merges)
    _check_weights(directory)
    model, fine_tuned = _new_model(directory, electra or config)
    _load_weights(model, weights)
    rules = normalization_fields(fields)
    if fine_tuned is not None:
        task, settings = fine_tuned
        remarks = () if task.contrastive else (f"the output layer of {task.name} in {directory} is dropped",)
        random: tuple[Part, ...] = () if task.reads_pooler and not settings.features else ("pooler",)
        read = ReadModel(model.backbone, tokens, rules, random, merges, family, remarks, (model, task, settings))
        return dataclasses.replace(read, **further)
    path = os.path.join(directory, CONFIG_FILE)
    stored = files.read_json(path)
    if LENGTH_FIELD not in stored and os.path.exists(os.path.join(directory, EXAMPLE_SPEC_FILE)):
        path = os.path.join(directory, EXAMPLE_SPEC_FILE)  # pushed before the field was written
    length, longest = files.read_json(path).get(LENGTH_FIELD), config.max_position_embeddings
    if length is not None and not (isinstance(length, int) and 2 < length <= longest):
        raise InputError(f"{path}: {LENGTH_FIELD} is {length!r}; it must be a whole number from 3 to {longest}")
    further["max_seq_length"] = length
    untrained = tuple(stored.get(UNTRAINED_FIELD, ()))
    if merges is not None and not electra:
        # A `BertForPreTraining` was trained; its pooler and next-sentence head read nothing.
        roberta = RobertaForMaskedLM(config)
        roberta.build()
        weight_copy.copy_weights(model, roberta)
        drawn = tuple(part for part in untrained if part == "masked-LM head")
        return ReadModel(roberta, tokens, rules, drawn, merges, family, **further)
    if not electra:
        return ReadModel(model, tokens, rules, untrained, family=family, **further)
    generator = _generator(directory, electra)
    return ReadModel(model, tokens, rules, untrained, merges, "electra", generator=generator, **further)


def _read_embedding(directory: str) -> EmbeddingSettings:
    path = os.path.join(directory, CONFIG_FILE)
    try:
        return EmbeddingSettings(**files.read_json(path).get(EMBEDDING_FIELD, {}))
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {EMBEDDING_FIELD}: {error}") from error


def _check_weights(directory: str) -> None:
    from bert_keras.saved_model.pretrained import WEIGHTS_FILE

    weights, generator = os.path.join(directory, WEIGHTS_FILE), _generator_file(directory)
    if not os.path.exists(weights):
        raise InputError(f"{weights} is missing; the folder of a pushed model needs it")
    for path in (weights, *([generator] if generator else [])):
        weight_copy.check_hdf5(path)


def _load_weights(model: Any, path: str) -> None:
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: the weights do not fit {CONFIG_FILE} beside it ({reason})") from error
    for variable in model.weights:
        weight_copy.check_finite(np.asarray(variable), f"{path}: {variable.path}")


def _generator(directory: str, electra: ElectraConfig) -> ElectraGenerator | None:
    from bert_keras.models.electra import ElectraGenerator

    path = _generator_file(directory)
    if path is None:
        return None
    generator = ElectraGenerator(electra)
    generator.build()
    _load_weights(generator, path)
    return generator


def _generator_file(directory: str) -> str | None:
    """None for an ELECTRA whose generator was drawn, or that an earlier version of this project pushed."""
    from bert_keras.saved_model.saved_model_files import GENERATOR_FILE

    path = os.path.join(directory, GENERATOR_FILE)
    return path if os.path.exists(path) else None


def outline_pushed(directory: str) -> Outline:
    """Read configuration, vocabulary and the indexes of the weights' files; errors as in `read_pushed`."""
    config, electra = _read_config(directory)
    fields = _vocabulary_spec(directory)
    vocabulary = _read_vocabulary(directory, config, fields.get("algorithm"))
    _check_weights(directory)
    width = electra.embedding_size if electra else config.of_width().hidden_size
    architecture = Architecture(_family(config, electra, vocabulary.merges if vocabulary else None), config, width)
    size = electra.generator_size if electra and _generator_file(directory) else None
    return Outline(architecture, vocabulary, normalization_fields(fields), size)


def _family(config: BertConfig, electra: ElectraConfig | None, merges: Sequence[tuple[str, str]] | None) -> Family:
    """A BERT with byte-level BPE is a RoBERTa. A fine-tuned ELECTRA without a projection is a BERT."""
    return "electra" if electra else family_of(config) or ("bert" if merges is None else "roberta")


def _read_config(directory: str) -> tuple[BertConfig, ElectraConfig | None]:
    """The encoder, and for an ELECTRA its sizes; fine-tuned it has no generator, so its size means nothing."""
    from bert_keras.models.electra import ElectraConfig
    from bert_keras.tasks.settings import TASK_SPEC_FILE

    path = os.path.join(directory, CONFIG_FILE)
    try:
        text = files.read_text(path)
        config = BertConfig.from_json(text)
        sizes = {name: value for name, value in json.loads(text).items() if name in _ELECTRA_SIZES}
        if sizes and os.path.exists(os.path.join(directory, TASK_SPEC_FILE)):
            sizes["generator_size"] = 1.0
        return config, ElectraConfig(config, **sizes) if sizes else None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def _vocabulary_spec(directory: str) -> dict[str, Any]:
    """The content of `vocab_spec.json`; empty without the file."""
    path = os.path.join(directory, VOCABULARY_SPEC_FILE)
    return files.read_json(path) if os.path.exists(path) else {}


def read_tokenizer(directory: str) -> Tokenizer:
    """Read the tokenizer of a model that the pipeline trained.

    Raises:
        InputError: a file is missing or damaged.
    """
    from bert_keras.tokenizers.wordpiece import BertTokenizer

    config = BertConfig.from_json(files.read_text(os.path.join(directory, CONFIG_FILE)))
    fields = files.read_json(os.path.join(directory, VOCABULARY_SPEC_FILE))
    vocabulary = _read_vocabulary(directory, config, fields["algorithm"])
    if vocabulary is None:
        raise InputError(f"{directory}: has no vocabulary; the folder of a pushed model needs one")
    if vocabulary.sentencepiece is not None:
        return SentencePieceTokenizer(vocabulary.sentencepiece)
    if vocabulary.merges is not None:
        return ByteBpeTokenizer(vocabulary.tokens, vocabulary.merges)
    return BertTokenizer(vocabulary.tokens, **normalization_fields(fields))


def _read_vocabulary(directory: str, config: BertConfig, algorithm: str | None) -> Vocabulary | None:
    """The vocabulary of an algorithm of `vocab_spec.json`; None without its files."""
    if algorithm == "sentencepiece":
        # Its rules are in it.
        return vocabulary_files.read_sentencepiece(directory, config.vocab_size, CONFIG_FILE, False, True)
    if algorithm == "byte_bpe":
        names = vocabulary_files.BPE_VOCABULARY_FILE, vocabulary_files.MERGES_FILE
        return vocabulary_files.read_byte_bpe(directory, names, config.vocab_size, CONFIG_FILE)
    path = os.path.join(directory, VOCABULARY_FILE)
    tokens = vocabulary_files.read_wordpiece(path, config.vocab_size, CONFIG_FILE)
    return None if tokens is None else Vocabulary(tokens)


def _new_model(directory: str, config: BertConfig | ElectraConfig) -> tuple[Any, tuple[Task, TaskSettings] | None]:
    """A built model of the class of a folder's weights, and its task and settings, None for a pre-trained model."""
    from bert_keras.models.bilm import BiLM
    from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSettings, TaskSpec
    from bert_keras.tasks.task_types import task_type_of

    size, fine_tuned = None, None
    if isinstance(config, ElectraConfig):
        model, size, config = ElectraDiscriminator(config), config.embedding_size, config.discriminator
    else:
        model = BiLM(config) if config.encoder == "bilm" else BertForPreTraining(config)
    if os.path.exists(os.path.join(directory, TASK_SPEC_FILE)):
        task = TaskSpec.load(directory).task
        settings = TaskSettings.load(directory)
        model, fine_tuned = task_type_of(task).create_model(config, task, settings, 0, size), (task, settings)
    model.build()
    return model, fine_tuned


def write_pushed(
    model: Model,
    tokenizer: Tokenizer | None,
    directory: str,
    family: Family | None = None,
    untrained: Sequence[Part] = (),
    generator: ElectraGenerator | None = None,
    embedding: EmbeddingSettings | None = None,
    max_seq_length: int | None = None,
) -> Written:
    """Write a SavedModel with the signatures that the model can answer; missing heads get random weights.

    Args:
        model: the model, written as float32.
        tokenizer: the model's tokenizer.
        directory: a new or empty folder.
        family: family of the model.
        untrained: the parts of the model that its source lacked; no signature reads them. A pooler from the source
            counts as trained, even without its next-sentence head.
        generator: of an `ElectraDiscriminator`; None: it is drawn, and no signature reads it.
        embedding: how texts get one vector, in the signature `embed`.
        max_seq_length: as in `ReadModel`.

    Raises:
        InputError: there is no vocabulary, or not the model's (the served graph tokenizes with it), or the model is
            causal or an ELECTRA's generator alone. Nothing is written.
    """
    from bert_keras.objectives import electra, mlm, mlm_nsp
    from bert_keras.saved_model.pretrained import export_saved_model

    architecture = architecture_of(model, family)
    config, family = architecture.encoder, architecture.family
    if tokenizer is None:
        raise InputError("a model that takes raw text needs a vocabulary: give a source with a vocab.txt")
    if not has_vocabulary(family, byte_bpe=isinstance(tokenizer, ByteBpeTokenizer)):
        raise InputError(
            f"{architecture.title}: {_WHOSE} hold a RoBERTa with byte-level BPE and all others with word pieces; give "
            "the vocabulary that it was trained with"
        )
    if isinstance(tokenizer, ByteBpeTokenizer):
        try:
            check_order(tokenizer.merges)
        except ValueError as error:
            raise InputError(str(error)) from error
    vocabulary_files.check_tokenizer(tokenizer, config.vocab_size)
    whole, drawn = _pretraining_model(model, generator, architecture)
    layout = ExampleLayout.bert(max_seq_length or config.max_position_embeddings, _MAX_PREDICTIONS)
    objective = mlm_nsp.OBJECTIVE if family == "bert" else mlm_nsp.SENTENCE_ORDER
    if family not in ("bert", "albert") or "next-sentence head" in (*untrained, *drawn):
        objective = electra.OBJECTIVE if family == "electra" else mlm.OBJECTIVE
        layout = dataclasses.replace(layout, objective="segment_pair")
    with files.staged(directory) as temporary:
        export = ExportSettings(embedding=embedding or EmbeddingSettings())
        export_saved_model(whole, tokenizer, temporary, layout, objective, export, untrained=(*untrained, *drawn))
    if family in ("roberta", "modernbert"):  # pushed as a BERT, whose other parts nothing reads
        drawn = tuple(part for part in drawn if part == "masked-LM head")
    return Written(drawn)


def _pretraining_model(
    model: Model, generator: ElectraGenerator | None, architecture: Architecture
) -> tuple[Any, tuple[Part, ...]]:
    """The model that is pushed, with the weights of `model` and `generator`, and its parts that they lack."""
    from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
    from bert_keras.models.pretraining_heads import BertForPreTraining

    config, size = architecture.encoder, architecture.embedding_size
    if isinstance(model, ElectraGenerator):
        raise InputError(
            "an ELECTRA's generator is pushed with its discriminator: give the discriminator's folder, with this one "
            "in it as generator/"
        )
    if architecture.family != "electra":
        whole = encoder = BertForPreTraining(config)
    elif generator is None:
        whole = encoder = ElectraDiscriminator(ElectraConfig(config, size, 1.0))
    else:
        share = generator_size(architecture_of(generator), architecture, "the generator")
        whole = ElectraForPreTraining(ElectraConfig(config, size, share))
        encoder = whole.discriminator
    whole.build()
    drawn = weight_copy.copy_weights(model, encoder)
    if generator is None:
        return whole, (*drawn, *(("generator",) if architecture.family == "electra" else ()))
    return whole, (*drawn, *weight_copy.copy_weights(generator, whole.generator))
