"""The tensors of a Hugging Face folder: its files of weights, and their names as in the table of weights."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable

import numpy as np

from bert_keras import files as files_
from bert_keras.convert import modernbert, weight_copy
from bert_keras.convert.torch_file import tensors_of_torch_file
from bert_keras.convert.weight_copy import StoredTensor, TensorReader
from bert_keras.convert.weight_map import HEADS, PREFIXES, TIED, Family
from bert_keras.errors import InputError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TORCH_FILE = "pytorch_model.bin"
# Files of weights, and how each is read; one in parts has an index, NAME.index.json.
_WEIGHTS: dict[str, TensorReader] = {WEIGHTS_FILE: weight_copy.tensors_of_file, TORCH_FILE: tensors_of_torch_file}
# Weights of transformers' former classes: the library, and the argument of `from_pretrained` that reads them.
_OTHER_WEIGHTS = {
    "tf_model.h5": ("TensorFlow", ", from_tf=True"),
    "flax_model.msgpack": ("Flax", ", from_flax=True"),
}

# Prefixes of tensors' names under PyTorch's wrappers: several GPUs, a compiled model.
_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")
# Beginnings of an encoder's names without the family's prefix.
_ENCODER = ("embeddings.", "embeddings_project.", "encoder.", "layers.", "final_norm.", "pooler.")
# A ModernBERT's head for a task begins with the layers of its masked-LM head, which has a tensor of DECODER, too.
_MODERNBERT_HEAD, _DECODER = "head.", "decoder."


def open_tensors(
    directory: str, family: Family, files: contextlib.ExitStack
) -> tuple[list[StoredTensor], str, tuple[str, ...]]:
    """The tensors of encoder and pre-training heads, the file that lists them, and the names of a task's head.

    `files` closes the files.
    """
    for name, read in _WEIGHTS.items():
        path = os.path.join(directory, name)
        index = f"{path}.index.json"
        if os.path.exists(path):
            tensors = read(path, files)
        elif os.path.exists(index):
            path, tensors = index, weight_copy.tensors_of_shards(index, files, read)
        else:
            continue
        if any("/" in tensor.name for tensor in tensors):
            raise _of_former_class(directory, path, "TensorFlow", "")
        tensors = [dataclasses.replace(tensor, name=_WRAPPERS.sub("", tensor.name)) for tensor in tensors]
        head = {t.name for t in tensors if not t.name.startswith((PREFIXES[family], *HEADS[family], *_ENCODER))}
        if head and not any(tensor.name.startswith(_DECODER) for tensor in tensors):
            head |= {tensor.name for tensor in tensors if tensor.name.startswith(_MODERNBERT_HEAD)}
        return [tensor for tensor in tensors if tensor.name not in head], path, tuple(sorted(head))
    for name, (library, argument) in _OTHER_WEIGHTS.items():
        if os.path.exists(path := os.path.join(directory, name)):
            raise _of_former_class(directory, path, library, argument)
    raise InputError(f"{directory} has neither {' nor '.join(_WEIGHTS)}; it is not a model folder")


def _of_former_class(directory: str, path: str, library: str, argument: str) -> InputError:
    """The error for weights under the names of a library that `transformers` 5 has left."""
    names = files_.read_json(os.path.join(directory, CONFIG_FILE)).get("architectures") or ["AutoModel"]
    return InputError(
        f"{path} has the weights of transformers' former {library} classes, which are not read; write them with "
        f"transformers 4.49, {library} and PyTorch: {names[0]}.from_pretrained(FOLDER{argument}).save_pretrained(NEW); "
        "then copy the tokenizer's files to NEW"
    )


def canonical(tensors: Iterable[StoredTensor], family: Family, reads: bool = True) -> dict[str, StoredTensor]:
    """Tensors by their name in the table: with the prefix and current names of layer normalisations, tied ones once.

    Tied ones are compared if `reads`.
    """
    named: dict[str, StoredTensor] = {}
    prefix = PREFIXES[family]
    for tensor in modernbert.split(tensors):
        name = tensor.name if tensor.name.startswith((prefix, *HEADS[family])) else f"{prefix}{tensor.name}"
        # Old names, in files converted from the original's, such as the best-known models.
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if name in named:
            other = named[name]
            raise InputError(f"{tensor.file}: {tensor} and {other} of {other.file} are the same weight; keep one")
        named[name] = tensor
    # A buffer, 0, 1, 2, ..., in files before 4.31.
    named.pop(f"{prefix}embeddings.position_ids", None)
    for copy, source in TIED[family].items():
        if copy not in named:
            continue
        tensor = named.pop(copy)
        original = named.setdefault(source, tensor)
        equal = not reads or np.array_equal(tensor.float32(), original.float32())
        if tensor.shape != original.shape or not equal:
            raise InputError(
                f"{tensor.file}: the tensor {tensor} is not equal to {original}; they must be tied (equal)"
            )
    return named
