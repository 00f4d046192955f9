"""The tensors of a Hugging Face folder: its files of weights, and their names as in the table of weights."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable

import numpy as np

from bert_keras.convert.families.family import Family
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.convert.tensor_files.keras_files import as_in_pytorch, tensors_of_keras_file
from bert_keras.convert.tensor_files.safetensors_files import TensorReader, tensors_of_safetensors, tensors_of_shards
from bert_keras.convert.tensor_files.torch_files import tensors_of_torch_file
from bert_keras.convert.weight_copy import float32, named
from bert_keras.errors import InputError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# Files of weights, in the order in which they are looked for; one in parts has an index, NAME.index.json.
_READERS: dict[str, TensorReader] = {
    WEIGHTS_FILE: tensors_of_safetensors,
    "pytorch_model.bin": tensors_of_torch_file,
    "tf_model.h5": tensors_of_keras_file,
}

# Parts of tensors' names under PyTorch's wrappers of a model or of a part: several GPUs, a compiled one.
_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:module|_orig_mod)\.")
# Beginnings of an encoder's names without the family's prefix.
_ENCODER = ("embeddings.", "embeddings_project.", "encoder.", "transformer.", "layers.", "final_norm.", "pooler.")
# A ModernBERT's head for a task begins with the layers of its masked-LM head, which has a tensor of DECODER, too.
_MODERNBERT_HEAD, _DECODER = "head.", "decoder."


def open_tensors(
    directory: str, family: Family, files: contextlib.ExitStack
) -> tuple[list[StoredTensor], str, tuple[str, ...]]:
    """The tensors of encoder and pre-training heads, the file that lists them, and the names of a task's head.

    `files` closes the files.
    """
    tensors, path = _first_file(directory, files)
    tensors = [dataclasses.replace(tensor, name=_WRAPPERS.sub("", tensor.name)) for tensor in tensors]
    has_prefix = any(tensor.name.startswith(family.prefix) for tensor in tensors)
    # A head may have a pooler of its own beside an encoder with the prefix.
    known = family.prefix, *family.head_prefixes, *(name for name in _ENCODER if not has_prefix or name != "pooler.")
    head = {t.name for t in tensors if not t.name.startswith(known)}
    if head and len(head) == len(tensors):
        raise InputError(
            f"{path} has no tensor of {family.title}, only others ({named(head)}); if a training's class holds the "
            "model and puts its own name before them, save the state_dict of the model inside it"
        )
    if head and not any(tensor.name.startswith(_DECODER) for tensor in tensors):
        head |= {tensor.name for tensor in tensors if tensor.name.startswith(_MODERNBERT_HEAD)}
    return [tensor for tensor in tensors if tensor.name not in head], path, tuple(sorted(head))


def _first_file(directory: str, files: contextlib.ExitStack) -> tuple[list[StoredTensor], str]:
    """The tensors of a folder's first file of weights, named as in PyTorch, and the file, or the index of its parts."""
    for name, read in _READERS.items():
        path = os.path.join(directory, name)
        index = f"{path}.index.json"
        if os.path.exists(path):
            tensors = read(path, files)
        elif os.path.exists(index):
            path, tensors = index, tensors_of_shards(index, files, read)
        else:
            continue
        return (as_in_pytorch(tensors) if any("/" in tensor.name for tensor in tensors) else tensors), path
    if os.path.exists(path := os.path.join(directory, "flax_model.msgpack")):
        raise InputError(
            f"{path} is of transformers' former Flax classes, which are not read; with transformers 4.49, Flax and "
            "PyTorch, and the class that config.json names: CLASS.from_pretrained(FOLDER, from_flax=True)"
            ".save_pretrained(NEW); then copy the tokenizer's files to NEW"
        )
    raise InputError(f"{directory} has none of {', '.join(_READERS)}; it is not a model folder")


def canonical(tensors: Iterable[StoredTensor], family: Family, reads: bool = True) -> dict[str, StoredTensor]:
    """Tensors by their name in the table: with the prefix and current names of layer normalisations, tied ones once.

    Tied ones are compared if `reads`.
    """
    named: dict[str, StoredTensor] = {}
    prefix = family.prefix
    for tensor in family.tensors_here(tensors):
        name = tensor.name if tensor.name.startswith((prefix, *family.head_prefixes)) else f"{prefix}{tensor.name}"
        # Old names, in files converted from the original's, such as the best-known models.
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name in named:
            other = named[name]
            raise InputError(f"{tensor.file}: {tensor} and {other} of {other.file} are the same weight; keep one")
        named[name] = tensor
    # A buffer, 0, 1, 2, ..., in files before 4.31.
    named.pop(f"{prefix}embeddings.position_ids", None)
    for copy, source in family.tied.items():
        if copy not in named:
            continue
        tensor = named.pop(copy)
        original = named.setdefault(source, tensor)
        equal = not reads or np.array_equal(float32(tensor), float32(original))
        if tensor.shape != original.shape or not equal:
            raise InputError(
                f"{tensor.file}: the tensor {tensor} is not equal to {original}; they must be tied (equal)"
            )
    return named
