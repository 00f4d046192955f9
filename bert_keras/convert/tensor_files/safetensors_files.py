"""safetensors files, and files of any format in parts, which an index lists."""

import contextlib
import os
from collections.abc import Callable

import ml_dtypes  # noqa: F401 (makes numpy know bfloat16)
import numpy as np

from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError
from bert_keras.files import check_download, read_json

# The tensors of a file, not yet read; the stack closes it.
TensorReader = Callable[[str, contextlib.ExitStack], list[StoredTensor]]


def tensors_of_safetensors(path: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    """The tensors of a safetensors file; `files` closes it."""
    from safetensors import SafetensorError, safe_open

    check_download(path)
    try:
        file = files.enter_context(safe_open(path, "numpy"))
    except SafetensorError as error:
        raise InputError(f"{path} is damaged or not a safetensors file ({error}); copy it again") from error

    def stored(name: str) -> StoredTensor:
        header = file.get_slice(name)

        def read() -> np.ndarray:
            try:
                return file.get_tensor(name)
            except AttributeError as error:  # numpy knows no such type
                raise InputError(
                    f"{path}: the tensor {name} is {header.get_dtype()}, no type of weights here"
                ) from error

        return StoredTensor(name, path, tuple(header.get_shape()), read)

    return [*map(stored, file.keys())]


def tensors_of_shards(index: str, files: contextlib.ExitStack, tensors_of: TensorReader) -> list[StoredTensor]:
    """The tensors of the files that an index lists, each read by `tensors_of`."""
    shards = read_json(index).get("weight_map", {})
    tensors: list[StoredTensor] = []
    for shard in sorted(set(shards.values())):
        if os.path.basename(shard) != shard:
            raise InputError(f"{index} names {shard!r}; shards must be in the same folder")
        path = os.path.join(os.path.dirname(index), shard)
        if not os.path.exists(path):
            raise InputError(f"{path} is missing, but the index beside it names it; is the download complete?")
        shard_tensors = tensors_of(path, files)
        names = {tensor.name for tensor in shard_tensors}
        for name, file in shards.items():
            # An index of TensorFlow's classes has the model's name before that of a weight.
            if file == shard and name not in names and name.partition("/")[2] not in names:
                raise InputError(f"{index} lists the tensor {name} in {shard}, which lacks it")
        tensors += shard_tensors
    return tensors
