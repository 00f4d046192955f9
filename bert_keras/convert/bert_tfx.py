"""This project's model folder: a SavedModel that takes raw text, with weights, configuration and vocabulary."""

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras import files
from bert_keras.convert import weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, check_written, generator_fields
from bert_keras.convert.families.table import FAMILIES, check_algorithm
from bert_keras.convert.model_folder import ModelFolder, Networks, Written, check_tokenizer
from bert_keras.convert.tensor_files.keras_files import check_hdf5
from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.saved_model.settings import (
    CONFIG_FILE,
    EMBEDDING_FIELD,
    FAMILY_FIELD,
    GENERATOR_FILE,
    LENGTH_FIELD,
    MEMBERS_FIELD,
    ORIGIN_FIELD,
    UNTRAINED_FIELD,
    WEIGHTS_FILE,
    EmbeddingSettings,
    ExportSettings,
    family_of_bert,
)
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSettings, TaskSpec
from bert_keras.tasks.table import Task
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.byte_bpe import BPE_FIELDS
from bert_keras.tokenizers.protocol import BYTE_BPE, SENTENCEPIECE, Tokenizer, stored_format
from bert_keras.tokenizers.unicode_tables import normalization_fields
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_FILE, VOCABULARY_SPEC_FILE, Vocabulary

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model
    from bert_keras.models.electra import ElectraConfig, ElectraGenerator

# P of the examples that the `evaluate` signature reads: the original's default.
_MAX_PREDICTIONS = 20
# Fields of an ELECTRA's `bert_config.json` that `BertConfig` lacks.
_ELECTRA_SIZES = ("embedding_size", "generator_size", "generator_layers", "embedding_sharing")


def read_pushed(directory: str, cased: bool | None = None) -> ModelFolder:
    """Read a model that the pipeline pushed or `write_pushed` wrote, of an ELECTRA the discriminator and any generator.

    InputError: a file is missing, damaged, or does not fit the configuration.
    """
    from bert_keras.models.electra import ElectraGenerator
    from bert_keras.models.pretraining_heads import RobertaForMaskedLM

    path = os.path.join(directory, CONFIG_FILE)
    config, electra = _read_config(directory)
    vocabulary = _read_vocabulary(directory, config)
    weights, generator = (os.path.join(directory, name) for name in (WEIGHTS_FILE, GENERATOR_FILE))
    if not os.path.exists(weights):
        raise InputError(f"{weights} is missing; the folder of a pushed model needs it")
    # None for an ELECTRA whose generator is untrained, or that an earlier version of this project pushed.
    has_generator = electra is not None and os.path.exists(generator)
    for file in (weights, *([generator] if has_generator else [])):
        check_hdf5(file)
    stored = files.read_json(path)
    try:
        embedding = EmbeddingSettings(**stored.get(EMBEDDING_FIELD, {}))
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {EMBEDDING_FIELD}: {error}") from error
    algorithm = vocabulary.algorithm if vocabulary else ""
    # Of an older folder; a fine-tuned ELECTRA without a projection is a BERT there.
    family = stored.get(FAMILY_FIELD, "electra" if electra else family_of_bert(config, algorithm))
    if family not in FAMILIES:
        raise InputError(f"{path}: {FAMILY_FIELD} is {family!r}; it must be one of {', '.join(FAMILIES)}")
    task: Task | None = None
    settings: TaskSettings | None = None
    if os.path.exists(os.path.join(directory, TASK_SPEC_FILE)):
        task, settings = TaskSpec.load(directory).task, TaskSettings.load(directory)

    def load() -> Networks:
        model = _new_model(electra or config, task, settings)
        _load_weights(model, weights)
        if task is not None:
            members = stored.get(MEMBERS_FIELD, 1)
            remarks = (f"{directory} serves the mean of {members} models; the first is read",) if members > 1 else ()
            return Networks(model, remarks=remarks)
        untrained = tuple(stored.get(UNTRAINED_FIELD, ()))
        if electra is None and (FAMILIES[family].masked_lm_only or algorithm == BYTE_BPE):
            # A `BertForPreTraining` was trained; its pooler and next-sentence head read nothing.
            roberta = RobertaForMaskedLM(model.config)
            roberta.build()
            weight_copy.copy_weights(model, roberta)
            return Networks(roberta, tuple(part for part in untrained if part == "masked-LM head"))
        network: ElectraGenerator | None = None
        if electra and has_generator:
            network = ElectraGenerator(electra)
            network.build()
            _load_weights(network, generator)
        return Networks(model, untrained, network)

    return ModelFolder(
        Architecture(family, config, electra.embedding_size if electra else config.of_width().hidden_size),
        load,
        lambda: vocabulary.tokenizer(directory, cased) if vocabulary else None,
        directory,
        generator_fields={name: getattr(electra, name) for name in _ELECTRA_SIZES[1:]} if has_generator else None,
        task=task,
        settings=settings,
        embedding=embedding,
        max_seq_length=None if task else _read_length(directory, config),
        origin=stored.get(ORIGIN_FIELD),
    )


def _load_weights(model: Any, path: str) -> None:
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: the weights do not fit {CONFIG_FILE} beside it ({reason})") from error
    for variable in model.weights:
        weight_copy.check_finite(np.asarray(variable), f"{path}: {variable.path}")


def _read_length(directory: str, config: BertConfig) -> int | None:
    """Tokens of a text that the signatures read; None: as many as there are positions."""
    path, examples = (os.path.join(directory, name) for name in (CONFIG_FILE, EXAMPLE_SPEC_FILE))
    if LENGTH_FIELD not in files.read_json(path) and os.path.exists(examples):
        path = examples  # pushed before the field was written
    length, longest = files.read_json(path).get(LENGTH_FIELD), config.max_position_embeddings
    if length is not None and not (isinstance(length, int) and 2 < length <= longest):
        raise InputError(f"{path}: {LENGTH_FIELD} is {length!r}; it must be a whole number from 3 to {longest}")
    return length


def _read_config(directory: str) -> "tuple[BertConfig, ElectraConfig | None]":
    """The encoder, and for an ELECTRA its sizes; fine-tuned it has no generator, so its size means nothing."""
    from bert_keras.models.electra import ElectraConfig

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


def read_tokenizer(directory: str) -> Tokenizer:
    """Read the tokenizer of a model that the pipeline trained; InputError if a file is missing or damaged."""
    config = BertConfig.from_json(files.read_text(os.path.join(directory, CONFIG_FILE)))
    vocabulary = _read_vocabulary(directory, config)
    if vocabulary is None:
        raise InputError(f"{directory}: has no vocabulary; the folder of a pushed model needs one")
    return vocabulary.tokenizer(directory)


def _read_vocabulary(directory: str, config: BertConfig) -> Vocabulary | None:
    """The vocabulary of the algorithm that `vocab_spec.json` names; None without its files."""
    path, size = os.path.join(directory, VOCABULARY_SPEC_FILE), (config.vocab_size, CONFIG_FILE)
    spec = files.read_json(path) if os.path.exists(path) else {}
    further: dict[str, Any] = {}
    if spec.get("algorithm") == SENTENCEPIECE:
        vocabulary = vocabulary_files.read_sentencepiece(directory, *size)
    elif spec.get("algorithm") == BYTE_BPE:
        names = vocabulary_files.BPE_VOCABULARY_FILE, vocabulary_files.MERGES_FILE
        vocabulary = vocabulary_files.read_byte_bpe(directory, names, *size)
        further = {name: spec[name] for name in BPE_FIELDS if name in spec}
    else:
        vocabulary = vocabulary_files.read_wordpiece(os.path.join(directory, VOCABULARY_FILE), *size)
        further = {"rules": normalization_fields(spec)}
    try:
        format_ = stored_format(spec)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: format: {error}") from error
    return dataclasses.replace(vocabulary, format=format_, **further) if vocabulary else None


def _new_model(config: "BertConfig | ElectraConfig", task: Task | None, settings: TaskSettings | None) -> Any:
    """A built model of the class of a folder's weights."""
    from bert_keras.models.bilm import BiLM
    from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.tasks.task_types import task_type_of

    size = None
    if isinstance(config, ElectraConfig):
        model, size, config = ElectraDiscriminator(config), config.embedding_size, config.discriminator
    else:
        model = BiLM(config) if config.encoder == "bilm" else BertForPreTraining(config)
    if task is not None and settings is not None:
        model = task_type_of(task).create_model(config, task, settings, 0, size)
    model.build()
    return model


def write_pushed(folder: ModelFolder, directory: str) -> Written:
    """Write a SavedModel with the signatures that the model can answer; missing heads get random weights.

    No signature reads an untrained part. A pooler of the source counts as trained, even without its next-sentence head.
    InputError: there is no vocabulary, or not the model's (the served graph tokenizes with it), or the model is causal
    or an ELECTRA's generator alone. Nothing is written.
    """
    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.objectives import electra, mlm, mlm_nsp
    from bert_keras.saved_model.pretrained import export_saved_model
    from bert_keras.saved_model.task_signatures import export_task_model

    export, tokenizer = ExportSettings(embedding=folder.embedding), folder.tokenizer
    if tokenizer is None:
        raise InputError("a model that takes raw text needs a vocabulary: give a source with a vocab.txt")
    if folder.task is not None and folder.settings is not None:
        export_task_model(folder.model, folder.task, folder.settings, tokenizer, directory, export, folder.record())
        return Written()
    architecture = architecture_of(folder.model, folder.family)
    if architecture.family != "static":
        check_written(architecture)
    config, family = architecture.encoder, architecture.family
    check_algorithm(family, tokenizer, folder.path or "the model")
    check_tokenizer(tokenizer, config.vocab_size)
    whole, added = _pretraining_model(folder.model, folder.generator, architecture)
    untrained = (*folder.untrained, *added)
    layout = ExampleLayout.bert(folder.max_seq_length or config.max_position_embeddings, _MAX_PREDICTIONS)
    is_bert = isinstance(whole, BertForPreTraining)
    objective = mlm_nsp.OBJECTIVE if family == "bert" else mlm_nsp.SENTENCE_ORDER
    if family not in ("bert", "albert") or "next-sentence head" in untrained:
        objective = mlm.OBJECTIVE if is_bert else electra.OBJECTIVE
        layout = dataclasses.replace(layout, objective="segment_pair")
    with files.staged(directory) as temporary:
        record = {**folder.record(), FAMILY_FIELD: family}
        export_saved_model(whole, tokenizer, temporary, layout, objective, export, untrained=untrained, record=record)
    if is_bert and family not in ("bert", "albert"):  # pushed as a BERT, whose other parts nothing reads
        added = tuple(part for part in added if part == "masked-LM head" and family != "static")
    return Written(added)


def _pretraining_model(
    model: "Model", generator: "ElectraGenerator | None", architecture: Architecture
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
    if architecture.family != "electra" and not isinstance(model, ElectraDiscriminator):
        whole = encoder = BertForPreTraining(config)
    elif generator is None:
        whole = encoder = ElectraDiscriminator(ElectraConfig(config, size, 1.0))
    else:
        layers, sharing = generator.config.generator_layers, generator.config.embedding_sharing
        fields: dict[str, Any] = generator_fields(architecture_of(generator), architecture, "the generator", layers)
        whole = ElectraForPreTraining(ElectraConfig(config, size, **fields, embedding_sharing=sharing))
        encoder = whole.discriminator
    whole.build()
    untrained = weight_copy.copy_weights(model, encoder)
    if generator is None:
        return whole, (*untrained, *(("generator",) if isinstance(whole, ElectraDiscriminator) else ()))
    untrained += weight_copy.copy_weights(generator, whole.generator)
    whole.split_embeddings()
    return whole, untrained
