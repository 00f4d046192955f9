"""Hugging Face's folder of a BERT, or of a relative (`weight_map.Family`): `config.json`, `model.safetensors` (or
shards and their index), and `vocab.txt`, `vocab.json` with `merges.txt`, `spiece.model`, or `tokenizer.json`.

Of older folders `pytorch_model.bin`, without running its pickle. The head of a fine-tuned model is left
out. Generator and discriminator of an ELECTRA are two folders; the generator's may lie in the discriminator's, as
`generator/`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras import files as files_
from bert_keras.convert import modernbert, sentence_transformers, weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, backbone_of, generator_size
from bert_keras.convert.huggingface_tensors import CONFIG_FILE, WEIGHTS_FILE, canonical, open_tensors
from bert_keras.convert.weight_copy import Outline, ReadModel, Written
from bert_keras.convert.weight_map import UNUSED_ROWS, Family
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, HiddenAct
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.tokenizer_files import read_rules
from bert_keras.tokenizers.vocabulary_files import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    Tokenizer,
    Vocabulary,
    read_length,
    read_settings,
    settings_of,
)

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model
    from bert_keras.models.electra import ElectraGenerator

# In a discriminator's folder: the folder of the generator that it was trained with.
GENERATOR_FOLDER = "generator"

_ACTIVATIONS: dict[str, HiddenAct] = {"gelu": "gelu_erf", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
# `gelu_new` is the older name, known to every version.
_ACTIVATION_NAMES: dict[HiddenAct, str] = {"gelu_erf": "gelu", "gelu_tanh": "gelu_new"}
# Fields of `config.json` whose other values mean another model with the same tensors.
_MUST_BE = {"position_embedding_type": "absolute", "is_decoder": False}
# Positions of a RoBERTa start at the id of padding, plus 1.
_MUST_BE_OF: dict[Family, dict[str, Any]] = {"bert": {}, "roberta": {"pad_token_id": 1}, "electra": {}}
_MUST_BE_OF["modernbert"] = modernbert.MUST_BE
_MUST_BE_OF["albert"] = {"num_hidden_groups": 1, "inner_group_num": 1}  # all layers have the same weights
# What an ALBERT's `config.json` may leave out (`AlbertConfig`).
_ALBERT = {"embedding_size": 128, "hidden_act": "gelu_new", "vocab_size": 30000}
_ALBERT |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# The class of `transformers` with the same parts.
_CLASSES = {
    "BertForPreTraining": "BertForPreTraining",
    "RobertaForMaskedLM": "RobertaForMaskedLM",
    "ElectraDiscriminator": "ElectraForPreTraining",
    "ElectraGenerator": "ElectraForMaskedLM",
}
_BARE_CLASSES = dict(zip(_MUST_BE_OF, ("Bert", "Roberta", "Electra", "ModernBert", "Albert"), strict=True))


def read_huggingface(directory: str) -> ReadModel:
    """Read a model according to `config.json`, with the heads in the file.

    Tensors may have the prefix `bert.` (`weight_map.PREFIXES`) or not.

    Raises:
        InputError: a file is missing or damaged, weights exist only as a pickle, the configuration is for another type
            of model, the sizes of vocabulary and word embeddings differ, or a tensor is missing, mis-shaped, unknown,
            or not tied as required. Names file, tensor, shapes, and what to do.
    """
    config_path = os.path.join(directory, CONFIG_FILE)
    outline = outline_huggingface(directory)
    architecture, vocabulary = outline.architecture, outline.vocabulary
    with contextlib.ExitStack() as files:
        tensors, file, head = open_tensors(directory, architecture.family, files)
        stored = canonical(tensors, architecture.family)
        model, initialised, remarks = weight_copy.read_model(architecture, "huggingface", stored, file)
    _check_head(model, architecture, config_path)
    positions = architecture.encoder.max_position_embeddings
    embedding, not_read = sentence_transformers.read_embedding(directory, positions)
    remarks += (*not_read, *outline.remarks, *weight_copy.head_left_out(head, file))
    return ReadModel(
        model,
        vocabulary.tokens if vocabulary else None,
        outline.normalization,
        initialised,
        vocabulary.merges if vocabulary else None,
        architecture.family,
        remarks,
        generator=_read_generator(directory, model) if outline.generator_size else None,
        embedding=embedding,
        sentencepiece=vocabulary.sentencepiece if vocabulary else None,
        max_seq_length=read_length(directory, positions),
        task_head=head,
    )


def outline_huggingface(directory: str) -> Outline:
    """Read configuration, vocabulary and the headers of the weights' files; errors as in `read_huggingface`."""
    architecture = _read_architecture(os.path.join(directory, CONFIG_FILE))
    vocabulary = _read_vocabulary(directory, architecture.encoder)
    rules, remarks = read_rules(directory, vocabulary)
    rules = sentence_transformers.lower_cased(directory, vocabulary, rules)
    with contextlib.ExitStack() as files:
        tensors, file, _ = open_tensors(directory, architecture.family, files)
        stored = canonical(tensors, architecture.family, reads=False)
        parts = {weight.part for weight in weight_copy.check_tensors(architecture, "huggingface", stored, file)}
    is_generator = architecture.family == "electra" and "masked-LM head" in parts
    size = _generator_size(directory, architecture)
    return Outline(architecture, vocabulary, rules, size, is_generator, remarks)


def _generator_size(directory: str, discriminator: Architecture) -> float | None:
    """The generator's share of the discriminator's width; None if there is no generator."""
    path = os.path.join(directory, GENERATOR_FOLDER, CONFIG_FILE)
    if discriminator.family != "electra" or not os.path.exists(path):
        return None
    outline = outline_huggingface(os.path.dirname(path))
    if not outline.is_generator:
        raise InputError(
            f"{os.path.dirname(path)}: has no masked-LM head, so it is no generator; give the one of {directory}"
        )
    return generator_size(outline.architecture, discriminator, f"{path}: is not the generator of {directory}")


def _read_generator(directory: str, discriminator: Model) -> ElectraGenerator:
    folder = os.path.join(directory, GENERATOR_FOLDER)
    generator: Any = read_huggingface(folder).model
    own, theirs = (backbone_of(network).embeddings.get_weights() for network in (generator, discriminator))
    if not all(map(np.array_equal, own, theirs)):
        raise InputError(f"{folder}: its embeddings are not those of {directory}; they must be shared (equal)")
    return generator


def write_huggingface(
    model: Model,
    tokenizer: Tokenizer | None,
    directory: str,
    family: Family | None = None,
    generator: ElectraGenerator | None = None,
    embedding: EmbeddingSettings | None = None,
    max_seq_length: int | None = None,
) -> Written:
    """Write a folder that `transformers` loads, as the class with the same heads, or as the bare encoder.

    Tensors always have the family's prefix: `transformers` reads both forms, other programs only this one.

    Args:
        model: the model, written as float32.
        tokenizer: the model's tokenizer; None writes no vocabulary.
        family: family of a `BertBackbone`; by default BERT.
        generator: of an `ElectraDiscriminator`, for a folder in this one.
        embedding: how texts get their vectors; then sentence-transformers loads the folder, too.
        max_seq_length: as in `ReadModel`; the tokenizer's `model_max_length`.

    Raises:
        InputError: the sizes of vocabulary and word embeddings differ, a RoBERTa's padding id is not 1,
            `transformers` computes the head with another gelu, or the model is causal. Nothing is written.
    """
    from safetensors.numpy import save_file

    architecture = architecture_of(model, family)
    vocabulary_files.check_tokenizer(tokenizer, architecture.encoder.vocab_size)
    _check_head(model, architecture, "the model")
    fields = _config_fields(model, architecture, tokenizer)
    left_out = weight_copy.left_out(model, "huggingface", architecture.family)
    tensors = modernbert.joined(weight_copy.tensors_of(model, "huggingface", architecture.family))
    with files_.staged(directory) as temporary:
        length = max_seq_length or architecture.encoder.max_position_embeddings
        if tokenizer:
            vocabulary_files.write_vocabulary(temporary, tokenizer)
            settings = settings_of(tokenizer, length)
            if architecture.family == "modernbert" or isinstance(tokenizer, SentencePieceTokenizer):
                settings |= modernbert.write_fast_tokenizer(temporary, tokenizer)
            files_.write_json(temporary, TOKENIZER_FILE, settings)
        files_.write_json(temporary, CONFIG_FILE, fields)
        if embedding:
            sentence_transformers.write_embedding(temporary, embedding, architecture.encoder.hidden_size, length)
        weights = os.path.join(temporary, WEIGHTS_FILE)
        # Some versions of `transformers` refuse a file without this field.
        save_file(tensors, weights, metadata={"format": "pt"})
        # safetensors makes the file readable to its owner only, whatever the umask.
        shutil.copymode(os.path.join(temporary, CONFIG_FILE), weights)
        if generator:
            write_huggingface(generator, tokenizer, os.path.join(temporary, GENERATOR_FOLDER))
    return Written(remarks=tuple(f"the {part} is dropped: {fields['architectures'][0]} has none" for part in left_out))


def _config_fields(model: Model, architecture: Architecture, tokenizer: Tokenizer | None) -> dict[str, Any]:
    config, family = architecture.encoder, architecture.family
    activation = _ACTIVATION_NAMES[config.hidden_act]
    fields: dict[str, Any] = {
        **_MUST_BE,
        **_MUST_BE_OF[family],
        "model_type": family,
        "architectures": [_class_of(model, family)],
    }
    if family == "modernbert":
        return fields | modernbert.fields_there(config, activation, tokenizer, hasattr(model, "mlm_head"))
    plain = config
    if family == "albert":
        if architecture.embedding_size == config.hidden_size:
            raise InputError(
                "Hugging Face's ALBERT always projects its embeddings, but model.embedding_width is model.hidden_size "
                "here; write the model with --to bert-tfx"
            )
        plain = dataclasses.replace(config, embedding_width=0, shared_layers=False)
        fields["embedding_size"] = architecture.embedding_size
    weight_copy.check_plain(plain, f"Hugging Face's {architecture.title}")
    fields |= {
        **plain.stored_fields(),
        "hidden_act": activation,
        "max_position_embeddings": config.max_position_embeddings + UNUSED_ROWS[family],
    }
    if family == "electra":
        fields["embedding_size"] = architecture.embedding_size
    if not tokenizer:
        return fields
    if fields.setdefault("pad_token_id", tokenizer.pad_id) != tokenizer.pad_id:
        raise InputError(
            f"the vocabulary has padding at id {tokenizer.pad_id}; a RoBERTa of Hugging Face counts its positions from "
            f"the id of padding, which must be {fields['pad_token_id']}: use the vocabulary that it was trained with"
        )
    if family == "roberta":
        fields |= {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    return fields


def _class_of(model: Model, family: Family) -> str:
    name = _CLASSES.get(type(model).__name__, f"{_BARE_CLASSES[family]}Model")
    return name if family != "albert" else f"Albert{name[name.index('For') :]}" if "For" in name else name


def _read_architecture(path: str) -> Architecture:
    # The default is the exact gelu, as in `transformers`.
    stored = files_.read_json(path)
    family = stored.get("model_type", "bert")
    fields = {"model_type": family, "hidden_act": "gelu", **(_ALBERT if family == "albert" else {}), **stored}
    if family not in _MUST_BE_OF:
        known = ", ".join(map(repr, _MUST_BE_OF))
        raise InputError(f"{path}: model_type is {family!r}; supported: {known}")
    for name, value in {**_MUST_BE, **_MUST_BE_OF[family]}.items():
        if fields.get(name, value) != value:
            raise InputError(f"{path}: {name} is {fields[name]!r}; supported: {value!r}")
    try:
        if UNUSED_ROWS[family]:
            fields["max_position_embeddings"] = fields.get("max_position_embeddings", 512) - UNUSED_ROWS[family]
        if family == "modernbert":
            fields = modernbert.fields_here(fields)
        if family == "albert":
            narrow = fields["embedding_size"] != fields.get("hidden_size")
            fields |= {"shared_layers": True, "embedding_width": fields["embedding_size"] if narrow else 0}
        encoder = BertConfig.from_fields({**fields, "causal": False}, _ACTIVATIONS)
        width = fields["embedding_size"] if family == "electra" else encoder.of_width().hidden_size
        if not isinstance(width, int) or width < 1:
            raise ValueError(f"embedding_size is {width!r}; it must be a whole number, at least 1")
    except KeyError as error:
        raise InputError(f"{path}: {error} is missing; the configuration of an ELECTRA needs it") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    return Architecture(family, encoder, width)


def _check_head(model: Model, architecture: Architecture, where: str) -> None:
    """Raise InputError if `transformers` computes another function from the masked-LM head's tensors."""
    if architecture.family in ("bert", "modernbert", "albert") or not hasattr(model, "mlm_head"):
        return
    if architecture.encoder.hidden_act != "gelu_erf":
        raise InputError(
            f"{where}: hidden_act is the approximate gelu, but transformers' masked-LM head of {architecture.title} "
            "always has the exact one; convert only a model with the exact gelu throughout, or without the head"
        )


def _read_vocabulary(directory: str, config: BertConfig) -> Vocabulary | None:
    tokens = vocabulary_files.read_wordpiece(os.path.join(directory, VOCABULARY_FILE), config.vocab_size, CONFIG_FILE)
    if tokens is not None:
        return Vocabulary(tokens)
    names = vocabulary_files.BPE_VOCABULARY_FILE, vocabulary_files.MERGES_FILE
    vocabulary = vocabulary_files.read_byte_bpe(directory, names, config.vocab_size, CONFIG_FILE)
    if vocabulary is None:
        settings = {"do_lower_case": True, "keep_accents": False, **read_settings(directory)}
        rules = settings["do_lower_case"], settings["keep_accents"]
        vocabulary = vocabulary_files.read_sentencepiece(directory, config.vocab_size, CONFIG_FILE, *rules)
    return vocabulary or vocabulary_files.read_fast(directory, config.vocab_size, CONFIG_FILE)
