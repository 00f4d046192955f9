"""`pytorch_model.bin`, as PyTorch 1.6 and later write it, read without PyTorch.

It is a zip:
    NAME/data.pkl     a pickle of the tensors by name: storage, offset, shape and strides
    NAME/data/KEY     the numbers of a storage
    NAME/byteorder    `little` or `big`; absent before PyTorch 2.1

A pickle can run code. This one may name nothing but tensors, storages and `OrderedDict`; all else is refused.
"""

from __future__ import annotations

import collections
import contextlib
import io
import pickle
import zipfile
import zlib
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401 (makes numpy know bfloat16)
import numpy as np

from bert_keras.convert.weight_copy import StoredTensor, missing_shard
from bert_keras.errors import InputError

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
