"""The tensors of a Hugging Face folder: its files of weights, and their names as in the table of weights.

`pytorch_model.bin`, as PyTorch 1.6 and later write it, is read without PyTorch. It is a zip:
    NAME/data.pkl     a pickle of the tensors by name: storage, offset, shape and strides
    NAME/data/KEY     the numbers of a storage
    NAME/byteorder    `little` or `big`; absent before PyTorch 2.1
A pickle can run code. This one may name nothing but tensors, storages and `OrderedDict`; all else is refused.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import os
import pickle
import re
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401 (makes numpy know bfloat16)
import numpy as np

from bert_keras import files as files_
from bert_keras.convert import weight_copy
from bert_keras.convert.families.family import Family
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.convert.weight_copy import TensorReader, float32, missing_shard
from bert_keras.errors import InputError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TORCH_FILE = "pytorch_model.bin"
# Weights of transformers' former classes: the library, and the argument of `from_pretrained` that reads them.
_OTHER_WEIGHTS = {
    "tf_model.h5": ("TensorFlow", ", from_tf=True"),
    "flax_model.msgpack": ("Flax", ", from_flax=True"),
}

# Prefixes of tensors' names under PyTorch's wrappers: several GPUs, a compiled model.
_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")
# Beginnings of an encoder's names without the family's prefix.
_ENCODER = ("embeddings.", "embeddings_project.", "encoder.", "transformer.", "layers.", "final_norm.", "pooler.")
# A ModernBERT's head for a task begins with the layers of its masked-LM head, which has a tensor of DECODER, too.
_MODERNBERT_HEAD, _DECODER = "head.", "decoder."
_DTYPES = {
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "DoubleStorage": "float64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}


class _Storage(NamedTuple):
    dtype: np.dtype
    key: str


class _View(NamedTuple):
    """A tensor: its first number in a storage, and the steps between numbers along each axis."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Tensors(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        # New functions each time: a pickle can set attributes of what it names.
        known: dict[str, Any] = {
            "torch._utils._rebuild_tensor_v2": lambda storage, offset, shape, strides, *_: _View(
                _Storage(*storage), int(offset), tuple(map(int, shape)), tuple(map(int, strides))
            ),
            "torch._utils._rebuild_parameter": lambda data, *_: data,
            "collections.OrderedDict": collections.OrderedDict,
        }
        if f"{module}.{name}" not in known:
            raise _NotATensor(f"{module}.{name}")
        return known[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        if dtype not in _DTYPES.values():
            raise pickle.UnpicklingError(f"no type of numbers: {dtype}")
        return _Storage(np.dtype(dtype), str(key))


class _NotATensor(Exception):
    """The pickle names another class or function."""


def tensors_of_torch_file(path: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    """The tensors of a file, not yet read; `files` closes it.

    Raises:
        InputError: it is missing, damaged or of an older form, or holds more than tensors by name.
    """
    try:
        archive = files.enter_context(zipfile.ZipFile(path))
    except FileNotFoundError as error:
        raise missing_shard(path) from error
    except zipfile.BadZipFile as error:
        raise InputError(
            f"{path} is no zip: it is damaged, or PyTorch before 1.6 wrote it; write such a file again: "
            "torch.save(torch.load(FILE), FILE)"
        ) from error
    pickled = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(pickled) != 1:
        raise InputError(f"{path} is a zip without data.pkl; PyTorch did not write it")
    root = pickled[0].removesuffix("data.pkl")
    if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
        raise InputError(f"{path} has numbers in big-endian order; only little-endian files are read")
    try:
        entries = _Tensors(io.BytesIO(archive.read(pickled[0]))).load()
    except _NotATensor as error:
        raise InputError(
            f"{path} names {error} beside its tensors; only weights by name are read, since a pickle can run code"
        ) from error
    except Exception as error:  # damaged bytes raise anything
        raise InputError(f"{path} is damaged ({type(error).__name__}: {error}); copy it again") from error
    if not isinstance(entries, dict):
        raise InputError(f"{path} holds no tensors by name but {type(entries).__name__}; save the state_dict")
    return [_stored(path, archive, root, str(name), view) for name, view in entries.items()]


def _stored(path: str, archive: zipfile.ZipFile, root: str, name: str, view: Any) -> StoredTensor:
    if not isinstance(view, _View):
        kind = type(view).__name__
        raise InputError(f"{path}: {name} is no tensor but {kind}; save the state_dict of the model alone")
    (dtype, key), offset, shape, strides = view
    damaged = f"{path} is damaged: the tensor {name} {list(shape)}"
    try:
        numbers = archive.getinfo(f"{root}data/{key}").file_size // dtype.itemsize
    except KeyError as error:
        raise InputError(f"{damaged} has no storage; copy it again") from error
    end = offset + 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or (0 not in shape and end > numbers):
        raise InputError(f"{damaged} lies beyond its storage; copy it again")

    def read() -> np.ndarray:
        try:
            values = np.frombuffer(archive.read(f"{root}data/{key}"), dtype)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(f"{damaged}: {error}; copy it again") from error
        return np.lib.stride_tricks.as_strided(values[offset:], shape, [step * dtype.itemsize for step in strides])

    return StoredTensor(name, path, shape, read)


# Files of weights, and how each is read; one in parts has an index, NAME.index.json.
_WEIGHTS: dict[str, TensorReader] = {WEIGHTS_FILE: weight_copy.tensors_of_file, TORCH_FILE: tensors_of_torch_file}


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
        has_prefix = any(tensor.name.startswith(family.prefix) for tensor in tensors)
        known = family.prefix, *family.head_prefixes, *(() if has_prefix else _ENCODER)
        head = {t.name for t in tensors if not t.name.startswith(known)}
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
