"""HDF5 files of Keras, and the names of transformers' TensorFlow classes (versions 2 to 4).

`tf_model.h5` has the group of a layer, the model's name, and the name of a weight, which `model.safetensors` of the
same classes and the parts of a `tf_model.h5` in parts have alone:
    bert/tf_bert_model/bert/encoder/layer_._0/attention/self/query/kernel:0     tf_model.h5
    bert/encoder/layer_._0/attention/self/query/kernel:0                        model.safetensors
    bert.encoder.layer.0.attention.self.query.weight                            PyTorch's, transposed
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Any

from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError
from bert_keras.files import check_download

_KERNEL = re.compile(r"(^|/)kernel(:\d+)?$")
# `mlm___cls` is a layer with another name in PyTorch, `layer_._0` is in a list.
_RENAMED = (
    (r":\d+$", ""),
    (r"(^|/)[^/]*___", r"\1"),
    (r"_\._|/+", "."),
    (r"(^|\.)(gamma|kernel|embeddings)$", r"\1weight"),
    (r"(^|\.)beta$", r"\1bias"),
)


def check_hdf5(path: str) -> None:
    """Raise InputError for an HDF5 file that is truncated or whose index is damaged; the weights are not read."""
    import h5py

    check_download(path)
    try:
        with h5py.File(path) as file:
            file.visititems(lambda name, item: None)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise InputError(f"{path} is damaged or incomplete ({error}); copy it again") from error


def tensors_of_keras_file(path: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    """The tensors of `tf_model.h5` or a part of one, without groups and the model's name; `files` closes it."""
    import h5py

    check_hdf5(path)
    file = files.enter_context(h5py.File(path))
    datasets: dict[str, Any] = {}
    file.visititems(lambda name, item: datasets.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    has_groups = "keras_version" in file.attrs  # a part has none
    # Layers that share embeddings have them each in their group.
    named = {name.split("/", 2)[-1] if has_groups else name: data for name, data in datasets.items()}
    return [
        StoredTensor(name, path, tuple(data.shape), functools.partial(data.__getitem__, ()))
        for name, data in named.items()
    ]


def as_in_pytorch(tensors: Iterable[StoredTensor]) -> list[StoredTensor]:
    """Tensors of TensorFlow's classes under the names, and in the layout, that PyTorch's classes have."""
    named: dict[str, StoredTensor] = {}
    for tensor in tensors:
        name = tensor.name
        for pattern, new in _RENAMED:
            name = re.sub(pattern, new, name)
        named[name] = dataclasses.replace(tensor.transposed() if _KERNEL.search(tensor.name) else tensor, name=name)
    # ALBERT's head has two biases in TensorFlow, and adds the decoder's.
    unused = {name.replace(".decoder.bias", ".bias") for name in named if name.endswith(".decoder.bias")}
    return [tensor for name, tensor in named.items() if name not in unused]
