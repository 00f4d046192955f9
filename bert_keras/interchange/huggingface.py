"""Hugging Face's directory of a BERT, RoBERTa or ELECTRA: `config.json`, `model.safetensors` (or shards and their
index), and `vocab.txt`, `vocab.json` with `merges.txt`, or `tokenizer.json`.

Pickles are never read: they can run code. Generator and discriminator of an ELECTRA are two directories.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import BertConfig, HiddenAct
from bert_keras.errors import InputError
from bert_keras.features import VOCABULARY_FILE
from bert_keras.interchange import files as files_
from bert_keras.interchange import transfer, vocabularies
from bert_keras.interchange.architecture import Architecture, architecture_of
from bert_keras.interchange.names import HEADS, TIED, UNUSED_ROWS, Family
from bert_keras.interchange.transfer import ReadModel, StoredTensor, Written
from bert_keras.interchange.vocabularies import Tokenizer, Vocabulary
from bert_keras.tokenizer import BertTokenizer

if TYPE_CHECKING:
    from bert_keras.interchange.architecture import Model

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILE = "tokenizer_config.json"
# Where a model has weights in these alone, it must be converted, by whom it can trust.
_OTHER_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")

_ACTIVATIONS: dict[str, HiddenAct] = {"gelu": "gelu_erf", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
# `gelu_new` is the older of the two names: every version knows it.
_ACTIVATION_NAMES: dict[HiddenAct, str] = {"gelu_erf": "gelu", "gelu_tanh": "gelu_new"}
# What a `config.json` may say that makes another model of the same tensors.
_MUST_BE = {"position_embedding_type": "absolute", "is_decoder": False}
# Positions of a RoBERTa count from the id of padding, plus 1.
_MUST_BE_OF: dict[Family, dict[str, Any]] = {"bert": {}, "roberta": {"pad_token_id": 1}, "electra": {}}
# Which class of `transformers` has the same parts.
_CLASSES = {
    "BertForPreTraining": "BertForPreTraining",
    "RobertaForMaskedLM": "RobertaForMaskedLM",
    "ElectraDiscriminator": "ElectraForPreTraining",
    "ElectraGenerator": "ElectraForMaskedLM",
}
_BARE_CLASSES: dict[Family, str] = {"bert": "BertModel", "roberta": "RobertaModel", "electra": "ElectraModel"}


def read_huggingface(directory: str) -> ReadModel:
    """Reads a BERT, RoBERTa or ELECTRA, as its `config.json` says, with those of its heads that are there.

    Tensors may have the prefix `bert.` (`roberta.`, `electra.`) or not.

    Raises:
        InputError: a file is missing or damaged, weights are there as a pickle only, the configuration is of another
            kind of model, the vocabulary has not a token for each row of the word embeddings, or a tensor is missing,
            mis-shaped, one too many, or not tied that must be. Names file, tensor, shapes, and what to do.
    """
    config_path = os.path.join(directory, CONFIG_FILE)
    architecture = _read_architecture(config_path)
    vocabulary = _read_vocabulary(directory, architecture.encoder)
    settings = _read_settings(os.path.join(directory, TOKENIZER_FILE))
    with contextlib.ExitStack() as files:
        tensors, file = _open_tensors(directory, files)
        stored = _canonical(tensors, architecture.family)
        model, initialised, remarks = transfer.read_model(architecture, "huggingface", stored, file)
    _check_head(model, architecture, config_path)
    if vocabulary and vocabulary.merges is not None and settings.get("add_prefix_space"):
        remarks += (f"the tokenizer of {directory} puts a space before every text; none is put here",)
    return ReadModel(
        model,
        vocabulary.tokens if vocabulary else None,
        settings.get("do_lower_case"),
        initialised,
        vocabulary.merges if vocabulary else None,
        architecture.family,
        remarks,
    )


def write_huggingface(
    model: Model, tokenizer: Tokenizer | None, directory: str, family: Family | None = None
) -> Written:
    """Writes a directory that `transformers` loads, as the class with the same heads, or as the bare encoder.

    Tensors have the family's prefix in all cases: `transformers` reads both forms, others this one alone.

    Args:
        model: its weights are written as float32.
        tokenizer: the model's; without one no vocabulary is written.
        family: what a `BertBackbone` is; by default a BERT.

    Raises:
        InputError: the vocabulary has not a token for each row of the word embeddings, a RoBERTa's padding has not the
            id 1, `transformers` computes the head with another gelu, or the model is causal. Nothing is written.
    """
    from safetensors.numpy import save_file

    architecture = architecture_of(model, family)
    vocabularies.check_tokenizer(tokenizer, architecture.encoder)
    _check_head(model, architecture, "the model")
    fields = _config_fields(model, architecture, tokenizer)
    left_out = transfer.left_out(model, "huggingface", architecture.family)
    tensors = transfer.tensors_of(model, "huggingface", architecture.family)
    with files_.staged(directory) as temporary:
        if tokenizer:
            vocabularies.write_vocabulary(temporary, tokenizer)
            settings = _tokenizer_settings(tokenizer, architecture.encoder)
            files_.write_json(temporary, TOKENIZER_FILE, settings)
        files_.write_json(temporary, CONFIG_FILE, fields)
        weights = os.path.join(temporary, WEIGHTS_FILE)
        # Versions of `transformers` refuse a file that does not say so.
        save_file(tensors, weights, metadata={"format": "pt"})
        # safetensors lets the owner alone read it, whatever the umask.
        shutil.copymode(os.path.join(temporary, CONFIG_FILE), weights)
    return Written(remarks=tuple(f"the {part} is dropped: {fields['architectures'][0]} has none" for part in left_out))


def _config_fields(model: Model, architecture: Architecture, tokenizer: Tokenizer | None) -> dict[str, Any]:
    config, family = architecture.encoder, architecture.family
    fields: dict[str, Any] = {
        **dataclasses.asdict(config),
        **_MUST_BE,
        **_MUST_BE_OF[family],
        "model_type": family,
        "architectures": [_CLASSES.get(type(model).__name__, _BARE_CLASSES[family])],
        "hidden_act": _ACTIVATION_NAMES[config.hidden_act],
        "max_position_embeddings": config.max_position_embeddings + UNUSED_ROWS[family],
    }
    if family == "electra":
        fields["embedding_size"] = architecture.embedding_size
    if not tokenizer:
        return fields
    if fields.setdefault("pad_token_id", tokenizer.pad_id) != tokenizer.pad_id:
        raise InputError(
            f"the vocabulary has padding at id {tokenizer.pad_id}; a RoBERTa of Hugging Face counts its positions from "
            f"the id of padding, which must be {fields['pad_token_id']}: give the vocabulary that it was trained with"
        )
    if family == "roberta":
        fields |= {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    return fields


def _tokenizer_settings(tokenizer: Tokenizer, config: BertConfig) -> dict[str, Any]:
    settings = {"model_max_length": config.max_position_embeddings}
    if isinstance(tokenizer, BertTokenizer):
        return {**settings, "tokenizer_class": "BertTokenizer", "do_lower_case": tokenizer.lower_case}
    return {**settings, "tokenizer_class": "RobertaTokenizer", "add_prefix_space": False}


def _read_architecture(path: str) -> Architecture:
    # As `transformers`: the exact gelu, if nothing is said.
    fields = {"model_type": "bert", "hidden_act": "gelu", **files_.read_json(path)}
    family = fields["model_type"]
    if family not in _MUST_BE_OF:
        known = ", ".join(map(repr, _MUST_BE_OF))
        raise InputError(f"{path}: model_type is {family!r}; only {known} can be read")
    for name, value in {**_MUST_BE, **_MUST_BE_OF[family]}.items():
        if fields.get(name, value) != value:
            raise InputError(f"{path}: {name} is {fields[name]!r}; only {value!r} can be read")
    try:
        if UNUSED_ROWS[family]:
            fields["max_position_embeddings"] = fields.get("max_position_embeddings", 512) - UNUSED_ROWS[family]
        encoder = BertConfig.from_fields({**fields, "causal": False}, _ACTIVATIONS)
        width = fields["embedding_size"] if family == "electra" else encoder.hidden_size
        if not isinstance(width, int) or width < 1:
            raise ValueError(f"embedding_size is {width!r}; it must be a whole number, at least 1")
    except KeyError as error:
        raise InputError(f"{path}: {error} is not there; the configuration of an ELECTRA has it") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    return Architecture(family, encoder, width)


def _check_head(model: Model, architecture: Architecture, where: str) -> None:
    """InputError if `transformers` and this project compute different functions of the masked-LM head's tensors."""
    if architecture.family == "bert" or not hasattr(model, "mlm_head"):
        return
    if architecture.encoder.hidden_act != "gelu_erf":
        raise InputError(
            f"{where}: hidden_act is the approximate gelu, but transformers' masked-LM head of {architecture.title} "
            "has the exact one always; only a model with that throughout, or without the head, can be converted"
        )


def _read_vocabulary(directory: str, config: BertConfig) -> Vocabulary | None:
    tokens = vocabularies.read_wordpiece(os.path.join(directory, VOCABULARY_FILE), config, CONFIG_FILE)
    if tokens is not None:
        return Vocabulary(tokens)
    names = vocabularies.BPE_VOCABULARY_FILE, vocabularies.MERGES_FILE
    found = vocabularies.read_byte_bpe(directory, names, config, CONFIG_FILE)
    return found or vocabularies.read_fast(directory, config, CONFIG_FILE)


def _read_settings(path: str) -> dict[str, Any]:
    return files_.read_json(path) if os.path.exists(path) else {}


def _open_tensors(directory: str, files: contextlib.ExitStack) -> tuple[list[StoredTensor], str]:
    """All tensors of the directory, and the file that says which there are; `files` closes them."""
    whole, index = os.path.join(directory, WEIGHTS_FILE), os.path.join(directory, INDEX_FILE)
    if os.path.exists(whole):
        return _tensors_of_file(whole, files), whole
    if os.path.exists(index):
        return _tensors_of_shards(index, files), index
    for name in _OTHER_WEIGHTS:
        if os.path.exists(os.path.join(directory, name)):
            raise InputError(
                f"{os.path.join(directory, name)} is not read (a pickle can run code, and only safetensors are read "
                f"here); where you trust it, write {WEIGHTS_FILE} with transformers: "
                "AutoModelForPreTraining.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
            )
    raise InputError(f"{directory} has neither {WEIGHTS_FILE} nor {INDEX_FILE}; it is no folder of weights")


def _tensors_of_file(path: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    from safetensors import SafetensorError, safe_open

    try:
        file = files.enter_context(safe_open(path, "numpy"))
    except FileNotFoundError as error:
        raise InputError(f"{path} is not there, but {INDEX_FILE} names it; is the download complete?") from error
    except SafetensorError as error:
        raise InputError(f"{path} is damaged or no safetensors file ({error}); bring it again") from error

    def stored(name: str) -> StoredTensor:
        return StoredTensor(name, path, tuple(file.get_slice(name).get_shape()), lambda: file.get_tensor(name))

    return [*map(stored, file.keys())]


def _tensors_of_shards(index: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    shards = files_.read_json(index).get("weight_map", {})
    tensors: list[StoredTensor] = []
    for shard in sorted(set(shards.values())):
        if os.path.basename(shard) != shard:
            raise InputError(f"{index} names {shard!r}; shards lie in the same folder")
        found = _tensors_of_file(os.path.join(os.path.dirname(index), shard), files)
        missing = {name for name, of in shards.items() if of == shard} - {tensor.name for tensor in found}
        if missing:
            raise InputError(f"{index} says that {shard} has the tensor {min(missing)}, which it has not")
        tensors += found
    return tensors


def _canonical(tensors: Iterable[StoredTensor], family: Family) -> dict[str, StoredTensor]:
    """Tensors by their name in the table: with the prefix, today's names of layer normalisations, tied ones once."""
    named: dict[str, StoredTensor] = {}
    for tensor in tensors:
        name = tensor.name if tensor.name.startswith((f"{family}.", *HEADS[family])) else f"{family}.{tensor.name}"
        # So they are called in files made from the original's, the best-known ones among them.
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name in named:
            other = named[name]
            raise InputError(f"{tensor.file}: {tensor} and {other} of {other.file} are the same weight; keep one")
        named[name] = tensor
    # A buffer, 0, 1, 2, ..., in files before 4.31.
    named.pop(f"{family}.embeddings.position_ids", None)
    for copy, source in TIED[family].items():
        if copy not in named:
            continue
        tensor = named.pop(copy)
        original = named.setdefault(source, tensor)
        if tensor.shape != original.shape or not np.array_equal(tensor.float32(), original.float32()):
            raise InputError(
                f"{tensor.file}: the tensor {tensor} is not equal to {original}; they must be tied, and only such "
                "can be read"
            )
    return named
