"""The initial model of a pre-training: the weights of a model folder, for a vocabulary that may have new tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

import keras
import numpy as np

from bert_keras.convert.architecture import FAMILY_NAMES, Architecture, backbone_of, has_vocabulary
from bert_keras.convert.detect import outline_any, read_any
from bert_keras.convert.weight_copy import Outline, variables_by_path
from bert_keras.convert.weight_map import Family
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.models.electra import ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
from bert_keras.notices import notify
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, check_order
from bert_keras.tokenizers.vocabulary_files import Tokenizer, vocabulary_files, wordpiece_tokenizer
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import replaced_tokens

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model

# Fields that training may change: they determine no weight and no output of a trained model.
_FREE_FIELDS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range", "vocab_size")
# Weights with a row for each token.
_BY_TOKEN = ("word_embeddings/embeddings", "output_bias")


@dataclasses.dataclass(frozen=True)
class InitialWeights:
    """The weights that a model took from a folder.

    Attributes:
        kept: parts with the folder's weights.
        drawn: parts that the folder lacks, with random weights.
        new_tokens: tokens that the folder's vocabulary lacks; their rows are means of the rows that they replace.
        learned_rows: of each trainable variable, in order, the rows that the folder lacks (new tokens); None: all.
    """

    kept: tuple[Part, ...]
    drawn: tuple[Part, ...]
    new_tokens: int
    learned_rows: tuple[list[int] | None, ...] = ()

    def __str__(self) -> str:
        drawn = f"; drawn: {', '.join(self.drawn)}" if self.drawn else ""
        return f"kept: {', '.join(self.kept)}{drawn}" + (f"; {self.new_tokens:,} new tokens" if self.new_tokens else "")


def initial_outline(directory: str, cased: bool | None = None) -> tuple[Outline, Tokenizer]:
    """Read the configuration and the tokenizer of a folder that pre-training can start from.

    Args:
        directory: a folder that `bert_keras.convert.detect.read_any` reads.
        cased: whether the vocabulary keeps case; None: as the folder says.

    Raises:
        InputError: a file of the weights is damaged, the weights are an ELECTRA's generator, there is no vocabulary or
            one that the family does not have, or its case is unknown.
    """
    outline = outline_any(directory)
    if outline.is_generator:
        raise InputError(
            f"{directory}: holds an ELECTRA's generator; give the folder of its discriminator, with this one in it as "
            "generator/"
        )
    family, vocabulary = outline.architecture.family, outline.vocabulary
    if vocabulary and vocabulary.sentencepiece is not None:
        raise InputError(
            f"{directory}: has a SentencePiece vocabulary, which pre-training does not go on with: fine-tune the model "
            "(bert-tfx finetune --init), or pre-train one with WordPiece (recipe albert_base)"
        )
    if vocabulary is None:
        raise InputError(f"{directory}: has no vocabulary; put the one that the model was trained with there")
    if not has_vocabulary(family, byte_bpe=vocabulary.merges is not None):
        raise InputError(
            f"{directory}: is a {FAMILY_NAMES[family]} with a vocabulary of "
            f"{'word pieces' if vocabulary.merges is None else 'byte-level BPE'}; a RoBERTa is trained on with "
            "byte-level BPE (vocab.json and merges.txt), all others with word pieces (vocab.txt)"
        )
    if vocabulary.merges is not None:
        try:
            check_order(vocabulary.merges)
            return outline, ByteBpeTokenizer(vocabulary.tokens, vocabulary.merges)
        except ValueError as error:
            raise InputError(f"{directory}: {error}") from error
    return outline, wordpiece_tokenizer(vocabulary.tokens, outline.normalization, directory, cased)


def check_family(directory: str, family: Family, trains_electra: bool) -> None:
    """Raise InputError for a biLM, and for the weights of an ELECTRA in another model; it takes a BERT's encoder."""
    if family == "bilm":
        raise InputError(f"{directory}: contains a biLM; continued pre-training of a biLM is not supported")
    if family == "electra" and not trains_electra:
        raise InputError(
            f"{directory}: holds ELECTRA, whose weights only an ELECTRA takes: --set pretraining.model_family=electra"
        )


def electra_sizes(outline: Outline) -> dict[str, int | float]:
    """The sizes (fields of `ElectraConfig`) that the weights of the initial model give to an ELECTRA."""
    sizes: dict[str, int | float] = {"embedding_size": outline.architecture.embedding_size}
    return sizes | ({"generator_size": outline.generator_size} if outline.generator_size else {})


def differences(config: BertConfig, initial: BertConfig) -> list[str]:
    """The fields in which an encoder cannot take the weights of the initial model."""
    mine, theirs = dataclasses.asdict(config), dataclasses.asdict(initial)
    return [name for name in mine if name not in _FREE_FIELDS and mine[name] != theirs[name]]


def initialize(model: keras.Model, directory: str, cased: bool | None, tokenizer: Tokenizer) -> InitialWeights:
    """Assign the weights of a folder to a built pre-training model; missing heads keep their random weights.

    The row of a new token, in the word embeddings and in the output bias, is the mean of the rows of the tokens that
    it replaces.

    Args:
        model: a model of `bert_keras.objectives.registry`. The discriminator of an `ElectraForPreTraining` takes the
            encoder of a BERT, too.
        directory: as in `initial_outline`.
        cased: as in `initial_outline`.
        tokenizer: the tokenizer of `model`: the folder's, with new tokens for unused ones and at the end.

    Raises:
        InputError: the folder cannot be read, or is a model of another architecture or vocabulary.
    """
    outline, original = initial_outline(directory, cased)
    is_electra = isinstance(model, ElectraForPreTraining)
    check_family(directory, outline.architecture.family, is_electra)
    replaced = _replaced(directory, original, tokenizer)
    source = read_any(directory)
    for remark in source.remarks:
        notify(remark)
    encoder = model.discriminator if is_electra else model
    config = backbone_of(encoder).config
    if wrong := differences(config, backbone_of(source.model).config):
        mine, theirs = getattr(config, wrong[0]), getattr(backbone_of(source.model).config, wrong[0])
        raise InputError(f"{directory}: has {wrong[0]} {theirs}, the model to train has model.{wrong[0]}={mine}")
    for name, size in electra_sizes(outline).items() if is_electra else ():
        if (mine := getattr(model.config, name)) != size:
            raise InputError(f"{directory}: has {name} {size}, the model to train has pretraining.{name}={mine}")
    learned: dict[int, list[int] | None] = {id(variable): None for variable in model.trainable_variables}
    kept, drawn = _assign(encoder, source.model, source.initialised, replaced, learned)
    if is_electra:
        if source.generator:
            _assign(model.generator, source.generator, (), replaced, learned)
        (kept if source.generator else drawn)["generator"] = None
    return InitialWeights(tuple(kept), tuple(drawn), len(replaced), tuple(learned.values()))


def _replaced(directory: str, original: Tokenizer, tokenizer: Tokenizer) -> dict[int, list[int]]:
    """The old tokens that each new token replaces; none in byte-level BPE, which no words can be added to."""
    if isinstance(original, BertTokenizer) and isinstance(tokenizer, BertTokenizer):
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
    if vocabulary_files(tokenizer) != vocabulary_files(original):
        raise InputError(f"{directory}: its vocabulary is not the examples': make them with --init too")
    return {}


def _assign(
    model: Model,
    source: Model,
    initialised: Collection[Part],
    replaced: dict[int, list[int]],
    learned: dict[int, list[int] | None],
) -> tuple[dict[Part, None], dict[Part, None]]:
    """Assign the weights of `source` but those of `initialised`; return the parts of `model` that it has and lacks.

    `learned` has the rows that are not assigned by the identity of the variables, and gets those of the assigned ones.
    """
    ours, theirs = variables_by_path(model), variables_by_path(source)
    kept: dict[Part, None] = {}
    drawn: dict[Part, None] = {}
    backbone = backbone_of(model)
    family: Family = "electra" if isinstance(model, (ElectraDiscriminator, ElectraGenerator)) else "bert"
    for weight in Architecture(family, backbone.config, backbone.embedding_size).weights():
        if weight.path not in ours:
            continue
        if weight.path not in theirs or weight.part in initialised:
            drawn[weight.part] = None
            continue
        kept[weight.part] = None
        value = np.asarray(theirs[weight.path], "float32")
        if id(ours[weight.path]) in learned:  # a pooler without a head above it is not trained
            learned[id(ours[weight.path])] = sorted(replaced) if weight.path.endswith(_BY_TOKEN) else []
        if weight.path.endswith(_BY_TOKEN):
            value = _with_new_rows(value, replaced, weight.shape[0])
        ours[weight.path].assign(value)
    return kept, drawn


def _with_new_rows(rows: np.ndarray, replaced: dict[int, list[int]], size: int) -> np.ndarray:
    """`rows` [V, ...] with `size` rows: each new one is the mean of the old ones that it replaces."""
    extended = np.zeros((size, *rows.shape[1:]), rows.dtype)
    extended[: len(rows)] = rows
    for token_id, old in replaced.items():
        extended[token_id] = rows[old].mean(axis=0)
    return extended
