"""The initial model of a pre-training: the weights of a model folder, for a vocabulary that may have new tokens."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from bert_keras.convert.architecture import FAMILY_NAMES, Architecture, backbone_of
from bert_keras.convert.detect import outline_any, read_any
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import replaced_tokens

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
    """

    kept: tuple[Part, ...]
    drawn: tuple[Part, ...]
    new_tokens: int

    def __str__(self) -> str:
        drawn = f"; drawn: {', '.join(self.drawn)}" if self.drawn else ""
        return f"kept: {', '.join(self.kept)}{drawn}" + (f"; {self.new_tokens:,} new tokens" if self.new_tokens else "")


def initial_tokenizer(directory: str, cased: bool | None = None) -> tuple[BertConfig, BertTokenizer]:
    """Read the encoder's configuration and the tokenizer of a folder that pre-training can start from.

    Args:
        directory: a folder that `bert_keras.convert.detect.read_any` reads.
        cased: whether the vocabulary keeps case; None: the folder says it.

    Raises:
        InputError: no BERT, no vocabulary of word pieces, or its case is unknown.
    """
    outline = outline_any(directory)
    architecture, vocabulary = outline.architecture, outline.vocabulary
    if architecture.family != "bert":
        raise InputError(
            f"{directory}: holds {FAMILY_NAMES[architecture.family]}; only a BERT can be the initial model of a "
            "pre-training"
        )
    if vocabulary is None:
        raise InputError(f"{directory}: has no vocabulary; put the one that the model was trained with there")
    lower_case = outline.lower_case if cased is None else not cased
    if lower_case is None:
        raise InputError(f"{directory}: does not say whether its vocabulary is lower-cased: give --cased or --uncased")
    try:
        return architecture.encoder, BertTokenizer(vocabulary.tokens, lower_case)
    except ValueError as error:
        raise InputError(f"{directory}: {error}") from error


def differences(config: BertConfig, initial: BertConfig) -> list[str]:
    """The fields in which an encoder cannot take the weights of the initial model."""
    mine, theirs = dataclasses.asdict(config), dataclasses.asdict(initial)
    return [name for name in mine if name not in _FREE_FIELDS and mine[name] != theirs[name]]


def initialize(model: keras.Model, directory: str, cased: bool | None, tokenizer: BertTokenizer) -> InitialWeights:
    """Assign the weights of a folder to a built pre-training model; missing heads keep their random weights.

    The row of a new token, in the word embeddings and in the output bias, is the mean of the rows of the tokens that
    it replaces.

    Args:
        model: a model of `bert_keras.objectives.registry` around a BERT.
        directory: as in `initial_tokenizer`.
        cased: as in `initial_tokenizer`.
        tokenizer: the tokenizer of `model`: the folder's, with new tokens for unused ones and at the end.

    Raises:
        InputError: the folder cannot be read, or is a model of another architecture or vocabulary.
    """
    _, original = initial_tokenizer(directory, cased)
    if tokenizer.lower_case != original.lower_case:
        case = "lower-cased" if original.lower_case else "cased"
        raise InputError(f"{directory}: its vocabulary is {case}, the examples' is not: make them with --init too")
    source = read_any(directory)
    config = backbone_of(model).config
    if wrong := differences(config, backbone_of(source.model).config):
        mine, theirs = getattr(config, wrong[0]), getattr(backbone_of(source.model).config, wrong[0])
        raise InputError(f"{directory}: has {wrong[0]} {theirs}, the model to train has model.{wrong[0]}={mine}")
    try:
        replaced = replaced_tokens(original, tokenizer.vocabulary)
    except ValueError as error:
        raise InputError(f"{directory}: {error}") from error
    ours, theirs = variables_by_path(model), variables_by_path(source.model)
    kept: dict[Part, None] = {}
    drawn: dict[Part, None] = {}
    for weight in Architecture("bert", config, config.hidden_size).weights():
        if weight.path not in ours:
            continue
        if weight.path not in theirs or weight.part in source.initialised:
            drawn[weight.part] = None
            continue
        kept[weight.part] = None
        value = np.asarray(theirs[weight.path], "float32")
        if weight.path.endswith(_BY_TOKEN):
            value = _with_new_rows(value, replaced, config.vocab_size)
        ours[weight.path].assign(value)
    return InitialWeights(tuple(kept), tuple(drawn), len(replaced))


def _with_new_rows(rows: np.ndarray, replaced: dict[int, list[int]], size: int) -> np.ndarray:
    """`rows` [V, ...] with `size` rows: each new one is the mean of the old ones that it replaces."""
    extended = np.zeros((size, *rows.shape[1:]), rows.dtype)
    extended[: len(rows)] = rows
    for token_id, old in replaced.items():
        extended[token_id] = rows[old].mean(axis=0)
    return extended
