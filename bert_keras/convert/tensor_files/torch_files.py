"""`pytorch_model.bin`, read without PyTorch. As PyTorch 1.6 and later write it, it is a zip:
    NAME/data.pkl     a pickle of the tensors by name: storage, offset, shape and strides
    NAME/data/KEY     the numbers of a storage
    NAME/byteorder    `little` or `big`; absent before PyTorch 2.1
The older form has no zip: pickles of a number, a version, the machine's sizes, the tensors and the storages' keys, and
then each storage: how many numbers, and the numbers.

A pickle can run code. These may name nothing but tensors, storages and `OrderedDict`; all else is refused.
"""

import collections
import contextlib
import functools
import io
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError
from bert_keras.files import check_download

_DTYPES = {
    **{"FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16", "DoubleStorage": "float64"},
    **{"LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8"},
    **{"ByteStorage": "uint8", "BoolStorage": "bool"},
}
# The first pickle of the older form.
_OLD_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
# The bytes of a storage, by its key, and a function that reads them; KeyError without such a storage.
_Storages = Callable[[str], tuple[int, Callable[[], bytes]]]


class _View(NamedTuple):
    """A tensor: the type and key of its storage, its first number in it, and the steps along each axis."""

    storage: tuple[np.dtype, str]
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
                storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides))
            ),
            "torch._utils._rebuild_parameter": lambda data, *_: data,
            "collections.OrderedDict": collections.OrderedDict,
        }
        if f"{module}.{name}" not in known:
            raise _NotATensor(f"{module}.{name}")
        return known[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> tuple[np.dtype, str]:
        _, dtype, key, *_ = pid
        if dtype not in _DTYPES.values():
            raise pickle.UnpicklingError(f"no type of numbers: {dtype}")
        return np.dtype(dtype), str(key)


class _NotATensor(Exception):
    """The pickle names another class or function."""


def tensors_of_torch_file(path: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    """The tensors of a file, not yet read; `files` closes it.

    InputError: it is damaged, or holds more than tensors by name.
    """
    check_download(path)
    file: BinaryIO = files.enter_context(open(path, "rb"))  # noqa: SIM115 (the stack closes it)
    is_old = file.read(len(_OLD_START)) == _OLD_START
    try:
        entries, storages = _old_entries(file) if is_old else _zip_entries(path, files)
        if not isinstance(entries, dict):
            raise InputError(f"{path} holds no tensors by name but {type(entries).__name__}; save the state_dict")
        return [_stored(path, storages, str(name), view) for name, view in entries.items()]
    except _NotATensor as error:
        raise InputError(
            f"{path} names {error} beside its tensors; only weights by name are read, since a pickle can run code"
        ) from error
    except Exception as error:  # damaged bytes raise anything
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({type(error).__name__}: {error}); copy it again") from error


def _zip_entries(path: str, files: contextlib.ExitStack) -> tuple[Any, _Storages]:
    try:
        archive = files.enter_context(zipfile.ZipFile(path))
    except zipfile.BadZipFile as error:
        raise InputError(f"{path} is no zip, as PyTorch writes it, but damaged; copy it again") from error
    pickled = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(pickled) != 1:
        raise InputError(f"{path} is a zip without data.pkl; PyTorch did not write it")
    root = pickled[0].removesuffix("data.pkl")
    if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
        raise InputError(f"{path} has numbers in big-endian order; only little-endian files are read")

    def storage(key: str) -> tuple[int, Callable[[], bytes]]:
        name = f"{root}data/{key}"
        return archive.getinfo(name).file_size, functools.partial(archive.read, name)

    return _Tensors(io.BytesIO(archive.read(pickled[0]))).load(), storage


def _old_entries(file: BinaryIO) -> tuple[Any, _Storages]:
    _version, _machine, entries, keys = (_Tensors(file).load() for _ in range(4))
    dtypes = {view.storage[1]: view.storage[0] for view in entries.values() if isinstance(view, _View)}
    content, storages = np.memmap(file.name, "uint8", "r"), {}
    for key in keys:
        size = int.from_bytes(file.read(8), "little") * dtypes[key].itemsize
        numbers = content[file.tell() :][:size]
        if len(numbers) < size:
            raise EOFError(f"it ends in the storage {key}")
        storages[key] = size, numbers.tobytes
        file.seek(size, os.SEEK_CUR)
    return entries, storages.__getitem__


def _stored(path: str, storages: _Storages, name: str, view: Any) -> StoredTensor:
    if not isinstance(view, _View):
        kind = type(view).__name__
        raise InputError(f"{path}: {name} is no tensor but {kind}; save the state_dict of the model alone")
    (dtype, key), offset, shape, strides = view
    damaged = f"{path} is damaged: the tensor {name} {list(shape)}"
    try:
        size, read_storage = storages(key)
    except KeyError as error:
        raise InputError(f"{damaged} has no storage; copy it again") from error
    end = offset + 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or (0 not in shape and end > size // dtype.itemsize):
        raise InputError(f"{damaged} lies beyond its storage; copy it again")

    def read() -> np.ndarray:
        try:
            values = np.frombuffer(read_storage(), dtype)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(f"{damaged}: {error}; copy it again") from error
        return np.lib.stride_tricks.as_strided(values[offset:], shape, [step * dtype.itemsize for step in strides])

    return StoredTensor(name, path, shape, read)
