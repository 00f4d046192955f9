"""Hugging Face's directory of a BERT: `config.json`, `model.safetensors` (or shards and their index), and
`vocab.txt` or `tokenizer.json`.

Pickles are never read: they can run code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import BertConfig, HiddenAct
from bert_keras.errors import InputError
from bert_keras.interchange import transfer
from bert_keras.interchange.names import POSITION_IDS, TIED
from bert_keras.interchange.transfer import ReadBert, StoredTensor
from bert_keras.tokenizer import BertTokenizer

if TYPE_CHECKING:
    from bert_keras.backbone import BertBackbone
    from bert_keras.heads import BertForPreTraining

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILE = "tokenizer_config.json"
FAST_TOKENIZER_FILE = "tokenizer.json"
# Where a model has weights in these alone, it must be converted, by whom it can trust.
_OTHER_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")

_ACTIVATIONS: dict[str, HiddenAct] = {"gelu": "gelu_erf", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
# `gelu_new` is the older of the two names: every version knows it.
_ACTIVATION_NAMES: dict[HiddenAct, str] = {"gelu_erf": "gelu", "gelu_tanh": "gelu_new"}
# What a `config.json` may say that makes another model of the same tensors.
_MUST_BE = {"model_type": "bert", "position_embedding_type": "absolute", "is_decoder": False}


def read_huggingface(directory: str) -> ReadBert:
    """Reads a BERT, with those of its heads that are there; tensors with and without the prefix `bert.`.

    Raises:
        InputError: a file is missing or damaged, weights are there as a pickle only, the configuration is of another
            kind of model, the vocabulary has not a token for each row of the word embeddings, or a tensor is missing,
            mis-shaped, one too many, or not tied that must be. Names file, tensor, shapes, and what to do.
    """
    config = _read_config(os.path.join(directory, CONFIG_FILE))
    vocabulary = transfer.read_vocabulary(directory, config, CONFIG_FILE) or _read_fast_vocabulary(directory, config)
    lower_case = _read_lower_case(os.path.join(directory, TOKENIZER_FILE))
    with contextlib.ExitStack() as files:
        tensors, file = _open_tensors(directory, files)
        model, initialised = transfer.read_model(config, "huggingface", _canonical(tensors), file)
    return ReadBert(model, vocabulary, lower_case, initialised)


def write_huggingface(
    model: BertForPreTraining | BertBackbone, tokenizer: BertTokenizer | None, directory: str
) -> None:
    """Writes a directory that `transformers` loads: as `BertForPreTraining`, or as `BertModel` without heads.

    Tensors have the prefix `bert.` in both cases: `transformers` reads both forms, others this one alone.

    Args:
        model: its weights are written as float32.
        tokenizer: the model's; without one no `vocab.txt` is written.

    Raises:
        InputError: the vocabulary has not a token for each row of the word embeddings, or the model is causal.
            Nothing is written.
    """
    from safetensors.numpy import save_file

    from bert_keras.heads import BertForPreTraining

    config = model.config
    transfer.check_tokenizer(tokenizer, config)
    transfer.check_bidirectional(config)
    fields: dict[str, Any] = {
        **dataclasses.asdict(config),
        **_MUST_BE,
        "architectures": ["BertForPreTraining" if isinstance(model, BertForPreTraining) else "BertModel"],
        "hidden_act": _ACTIVATION_NAMES[config.hidden_act],
    }
    with transfer.staged(directory) as temporary:
        if tokenizer:
            fields["pad_token_id"] = tokenizer.pad_id
            transfer.write_vocabulary(temporary, tokenizer)
            settings = {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": tokenizer.lower_case,
                "model_max_length": config.max_position_embeddings,
            }
            transfer.write_text(temporary, TOKENIZER_FILE, _json(settings))
        transfer.write_text(temporary, CONFIG_FILE, _json(fields))
        weights = os.path.join(temporary, WEIGHTS_FILE)
        # Versions of `transformers` refuse a file that does not say so.
        save_file(transfer.tensors_of(model, "huggingface"), weights, metadata={"format": "pt"})
        # safetensors lets the owner alone read it, whatever the umask.
        shutil.copymode(os.path.join(temporary, CONFIG_FILE), weights)


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"


def _read_json(path: str) -> dict[str, Any]:
    text = transfer.read_text(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path} holds {type(fields).__name__}, not an object of fields")
    return fields


def _read_config(path: str) -> BertConfig:
    fields = _read_json(path)
    for name, value in _MUST_BE.items():
        if fields.get(name, value) != value:
            raise InputError(f"{path}: {name} is {fields[name]!r}; only {value!r} can be read")
    try:
        return BertConfig.from_fields(fields, _ACTIVATIONS)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def _read_lower_case(path: str) -> bool | None:
    return _read_json(path).get("do_lower_case") if os.path.exists(path) else None


def _read_fast_vocabulary(directory: str, config: BertConfig) -> list[str] | None:
    """The tokens of `tokenizer.json`, which `transformers` writes instead of `vocab.txt` since its version 5."""
    path = os.path.join(directory, FAST_TOKENIZER_FILE)
    if not os.path.exists(path):
        return None
    model = _read_json(path).get("model", {})
    if model.get("type") != "WordPiece":
        raise InputError(f"{path} is a tokenizer of {model.get('type')}; only WordPiece can be read")
    vocabulary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return transfer.check_vocabulary_size(vocabulary, path, config, CONFIG_FILE)


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
    shards = _read_json(index).get("weight_map", {})
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


def _canonical(tensors: Iterable[StoredTensor]) -> dict[str, StoredTensor]:
    """Tensors by their name in the table: with the prefix, today's names of layer normalisations, tied ones once."""
    named: dict[str, StoredTensor] = {}
    for tensor in tensors:
        name = tensor.name if tensor.name.startswith(("bert.", "cls.")) else f"bert.{tensor.name}"
        # So they are called in files made from the original's, the best-known ones among them.
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name in named:
            other = named[name]
            raise InputError(f"{tensor.file}: {tensor} and {other} of {other.file} are the same weight; keep one")
        named[name] = tensor
    named.pop(POSITION_IDS, None)
    for copy, source in TIED.items():
        if copy not in named:
            continue
        tensor = named.pop(copy)
        original = named.setdefault(source, tensor)
        if tensor.shape != original.shape or not np.array_equal(tensor.float32(), original.float32()):
            raise InputError(
                f"{tensor.file}: the tensor {tensor} is not equal to {original}; a BERT has them tied, "
                "and only such can be read"
            )
    return named
