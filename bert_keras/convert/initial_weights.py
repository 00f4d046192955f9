"""The initial model of a pre-training: the weights of a model folder, for a vocabulary that may have new tokens."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from bert_keras.convert.architecture import Architecture, backbone_of
from bert_keras.convert.families.table import check_algorithm
from bert_keras.convert.formats import read_folder
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.models.electra import ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
from bert_keras.notices import notify
from bert_keras.objectives.distillation import MASKED
from bert_keras.saved_model.settings import FAMILY_FIELD
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.vocabulary_files import format_fields, vocabulary_files
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import replaced_tokens

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model
    from bert_keras.models.pretraining_heads import MaskedLanguageModel

# Fields that training may change: they determine no weight and no output of a trained model.
_FREE_FIELDS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range", "vocab_size")
# Weights with a row for each token.
_BY_TOKEN = ("word_embeddings/embeddings", "output_bias")


@dataclasses.dataclass(frozen=True)
class InitialWeights:
    """The weights that a model took from a folder."""

    trained: tuple[Part, ...]  # parts with the folder's weights
    untrained: tuple[Part, ...]  # parts that the folder lacks, with random weights
    new_tokens: int  # tokens that the folder's vocabulary lacks; their rows are means of the rows that they replace
    # Of each trainable variable, in order, the rows that the folder lacks (new tokens); None: all.
    learned_rows: tuple[list[int] | None, ...] = ()
    # Fields of `bert_config.json` (`ModelFolder.record`).
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        untrained = f"; untrained: {', '.join(self.untrained)}" if self.untrained else ""
        new = f"; {self.new_tokens:,} new tokens" if self.new_tokens else ""
        return f"kept: {', '.join(self.trained)}{untrained}{new}"


def initial_folder(directory: str, cased: bool | None = None) -> tuple[ModelFolder, Tokenizer]:
    """Read a folder that pre-training can start from, without its weights, and its tokenizer.

    Arguments as of `read_folder`. InputError: it cannot be read, has no vocabulary or one that the family does not
    have, or its case is unknown.
    """
    folder = read_folder(directory, cased).without_task()
    tokenizer = folder.known_tokenizer()
    check_algorithm(folder.family, tokenizer, directory)
    return folder, tokenizer


def check_family(folder: ModelFolder, trains_electra: bool) -> None:
    """Raise InputError for a model that training does not go on from.

    A biLM, an ELECTRA's generator alone, and an ELECTRA for another model; an ELECTRA takes a BERT's encoder.
    """
    if folder.family == "bilm":
        raise InputError(f"{folder.path}: contains a biLM; continued pre-training of a biLM is not supported")
    if folder.is_generator:
        raise InputError(
            f"{folder.path}: holds an ELECTRA's generator; give the folder of its discriminator, with this one in it "
            "as generator/"
        )
    if folder.family == "electra" and not trains_electra:
        raise InputError(
            f"{folder.path}: holds ELECTRA, whose weights only an ELECTRA takes: --set pretraining.model_family=electra"
        )


def electra_sizes(folder: ModelFolder) -> dict[str, Any]:
    """The sizes (fields of `ElectraConfig`) that the weights of the initial model give to an ELECTRA."""
    return {"embedding_size": folder.architecture.embedding_size, **(folder.generator_fields or {})}


def differences(config: BertConfig, initial: BertConfig) -> list[str]:
    """The fields in which an encoder cannot take the weights of the initial model."""
    mine, theirs = dataclasses.asdict(config), dataclasses.asdict(initial)
    return [name for name in mine if name not in _FREE_FIELDS and mine[name] != theirs[name]]


def initialize(model: keras.Model, directory: str, cased: bool | None, tokenizer: Tokenizer) -> InitialWeights:
    """Assign the weights of a folder to a built pre-training model; missing heads keep their random weights.

    The row of a new token, in the word embeddings and in the output bias, is the mean of the rows of the tokens that it
    replaces. `model`: a model of `bert_keras.objectives.registry`. The discriminator of an `ElectraForPreTraining`
    takes the encoder of a BERT, too. `tokenizer`: the tokenizer of `model`: the folder's, with new tokens for unused
    ones and at the end. InputError: the folder cannot be read, or is a model of another architecture or vocabulary.
    """
    source, original = initial_folder(directory, cased)
    is_electra = isinstance(model, ElectraForPreTraining)
    check_family(source, is_electra)
    replaced = _replaced(directory, original, tokenizer)
    encoder = model.discriminator if is_electra else model
    config = backbone_of(encoder).config
    if wrong := differences(config, source.config):
        mine, theirs = getattr(config, wrong[0]), getattr(source.config, wrong[0])
        raise InputError(f"{directory}: has {wrong[0]} {theirs}, the model to train has model.{wrong[0]}={mine}")
    for name, size in electra_sizes(source).items() if is_electra else ():
        if (mine := getattr(model.config, name)) != size:
            raise InputError(f"{directory}: has {name} {size}, the model to train has pretraining.{name}={mine}")
    for remark in source.remarks:
        notify(remark)
    learned: dict[int, list[int] | None] = {id(variable): None for variable in model.trainable_variables}
    trained, untrained = _assign(encoder, source.model, source.untrained, replaced, learned)
    if is_electra:
        if source.generator:
            _assign(model.generator, source.generator, (), replaced, learned)
        elif model.config.embedding_sharing == "gdes":
            ours, theirs = (network.backbone.embeddings for network in (model.generator, encoder))
            ours.set_weights(theirs.get_weights())
        model.split_embeddings()
        (trained if source.generator else untrained)["generator"] = None
    record = source.record()
    if is_electra:  # perhaps of a BERT's encoder
        del record[FAMILY_FIELD]
    return InitialWeights(tuple(trained), tuple(untrained), len(replaced), tuple(learned.values()), record)


def _replaced(directory: str, original: Tokenizer, tokenizer: Tokenizer) -> dict[int, list[int]]:
    """The old tokens that each new token replaces; none but for word pieces, which words can be added to."""
    same_format = original.format == tokenizer.format
    if same_format and isinstance(original, BertTokenizer) and isinstance(tokenizer, BertTokenizer):
        theirs = tokenizer.normalization.fields
        for name, value in original.normalization.fields.items():
            if value != theirs[name]:
                raise InputError(
                    f"{directory}: its vocabulary has {name}={value}, the examples' {theirs[name]}: make them with "
                    "--init too"
                )
        try:
            return replaced_tokens(original, tokenizer.vocabulary)
        except ValueError as error:
            raise InputError(f"{directory}: {error}") from error
    if _rules(original) != _rules(tokenizer):
        raise InputError(f"{directory}: its vocabulary is not the examples': make them with --init too")
    return {}


def read_teacher(
    directory: str, objective: str, student: BertConfig, max_seq_length: int, tokenizer: Tokenizer, source: str
) -> "MaskedLanguageModel":
    """Read the teacher of a pre-training (`bert_keras.objectives.distillation.Taught`).

    Args:
        directory: a folder that `bert_keras.convert.formats.read_folder` reads.
        objective: the student's; `student`: its encoder; `max_seq_length`: of its examples.
        tokenizer: the student's.
        source: the folder of the student's vocabulary.

    Raises:
        InputError: the folder is damaged or has no masked-LM head, or the model cannot teach this student.
    """
    if objective not in MASKED:
        raise InputError(
            f"--teacher {directory}: masked tokens are learned from a teacher, and the objective is {objective}; it "
            f"must be one of {', '.join(MASKED)}"
        )
    folder, known = initial_folder(directory)
    if _rules(known) != _rules(tokenizer):
        raise InputError(
            f"{directory}: its vocabulary is not the student's, that of {source}: a teacher must have the same one; "
            "without --init and --vocab `pretrain --teacher` takes the teacher's"
        )
    model = folder.generator or folder.model
    config = backbone_of(model).config
    for name, theirs, ours in (
        ("hidden_size", config.hidden_size, student.hidden_size),
        ("max_position_embeddings", config.max_position_embeddings, max_seq_length),
    ):
        if theirs < ours:
            what = "the student is wider" if name == "hidden_size" else "the examples are longer"
            raise InputError(f"{directory}: has {name} {theirs}, {what}, {ours}; give a larger teacher")
    for remark in folder.remarks:
        notify(f"teacher: {remark}")
    if config.causal or not hasattr(model, "mlm_head") or "masked-LM head" in folder.untrained:
        raise InputError(
            f"{directory}: has no trained masked-LM head; a teacher of pre-training predicts masked tokens"
        )
    return model


def _rules(tokenizer: Tokenizer) -> tuple[Any, ...]:
    """Make the parts of a tokenizer that are compared: equal vocabularies have equal ones."""
    rules = tokenizer.normalization.fields if isinstance(tokenizer, BertTokenizer) else {}
    return vocabulary_files(tokenizer), format_fields(tokenizer), rules


def _assign(
    model: "Model",
    source: "Model",
    source_untrained: Collection[Part],
    replaced: dict[int, list[int]],
    learned: dict[int, list[int] | None],
) -> tuple[dict[Part, None], dict[Part, None]]:
    """Assign the weights of `source`, but for its untrained parts; return the parts of `model` with and without them.

    `learned` has the rows that are not assigned by the identity of the variables, and gets those of the assigned ones.
    """
    ours, theirs = variables_by_path(model), variables_by_path(source)
    trained: dict[Part, None] = {}
    untrained: dict[Part, None] = {}
    backbone = backbone_of(model)
    family = "electra" if isinstance(model, (ElectraDiscriminator, ElectraGenerator)) else "bert"
    for weight in Architecture(family, backbone.config, backbone.embedding_size).weights():
        if weight.path not in ours:
            continue
        if weight.path not in theirs or weight.part in source_untrained:
            untrained[weight.part] = None
            continue
        trained[weight.part] = None
        value = np.asarray(theirs[weight.path], "float32")
        if id(ours[weight.path]) in learned:  # a pooler without a head above it is not trained
            learned[id(ours[weight.path])] = sorted(replaced) if weight.path.endswith(_BY_TOKEN) else []
        if weight.path.endswith(_BY_TOKEN):
            rows = value
            value = np.zeros((weight.shape[0], *rows.shape[1:]), rows.dtype)
            value[: len(rows)] = rows
            for token_id, old in replaced.items():  # the mean of the rows that it replaces
                value[token_id] = rows[old].mean(axis=0)
        ours[weight.path].assign(value)
    return trained, untrained
